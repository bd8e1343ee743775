"""`python -m zmqtriton` is the command `zmqtriton`."""

from __future__ import annotations

import sys

from zmqtriton.main import main

if __name__ == "__main__":
    sys.exit(main())
