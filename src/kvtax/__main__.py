"""`python -m kvtax` is the `kvtax` command."""

import sys

from kvtax.cli import main

if __name__ == "__main__":
    sys.exit(main())
