"""`python3 -m vqfref`."""

import sys

from vqfref.cli import main

if __name__ == "__main__":
    sys.exit(main())
