"""`python3 -m vqfref`, and `python3 PATH/vqfref` of a copy that is nowhere on Python's path."""

import os
import sys

if not __package__:
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
try:
    from vqfref.cli import main
except KeyboardInterrupt:  # before there is anything to clean up
    os._exit(130)

if __name__ == "__main__":
    sys.exit(main())
