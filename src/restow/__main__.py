"""`python -m restow` is the `restow` command."""

import sys

from restow.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
