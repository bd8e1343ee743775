"""`python -m zmqtriton`, the same as the command `zmqtriton`."""

from __future__ import annotations

import sys

from zmqtriton.main import main

if __name__ == "__main__":
    sys.exit(main())
