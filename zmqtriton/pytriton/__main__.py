"""The command `python -m zmqtriton.pytriton`, which checks an installation."""

import sys

from zmqtriton.pytriton.check.command import main

if __name__ == "__main__":
    sys.exit(main())
