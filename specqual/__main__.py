"""`python -m specqual` is `specqual`, also where nothing is installed and the folders only lie in the path."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
