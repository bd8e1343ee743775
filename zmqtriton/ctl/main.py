"""The program `zmqtriton-ctl`, whose code is an add-on; this is the name that starts it."""

from zmqtriton_addons.ctl.main import cli as cli
from zmqtriton_addons.ctl.main import main as main

if __name__ == "__main__":
    main()
