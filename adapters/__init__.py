"""Other people's engines behind the contract, one module each."""
