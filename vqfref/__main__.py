"""`python3 -m vqfref`."""

import os
import sys

try:
    from vqfref.cli import main
except KeyboardInterrupt:  # before there is anything to clean up
    os._exit(130)

if __name__ == "__main__":
    sys.exit(main())
