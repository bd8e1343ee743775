"""The command `python -m pytriton`, which checks an installation."""

import sys

from zmqtriton.pytriton.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
