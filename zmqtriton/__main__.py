"""`python -m zmqtriton`, the same as the command `zmqtriton`."""

import sys

from zmqtriton.main import main

if __name__ == "__main__":
    sys.exit(main())
