"""The sub-commands of the console script, one module each."""
