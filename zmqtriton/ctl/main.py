"""The name that starts the program `zmqtriton-ctl`, whose code is an add-on."""

import sys

try:
    from zmqtriton_standard.ctl.main import cli as cli
    from zmqtriton_standard.ctl.main import main as main
except ImportError as error:  # the text says what is missing
    sys.exit(f"error: {error}")

if __name__ == "__main__":
    main()
