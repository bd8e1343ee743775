"""The end of a command that has failed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from zmqtriton.control_client.client import NoServerError
from zmqtriton.ctl.output import print_error
from zmqtriton_floor.errors import ZmqTritonError

EXIT_REFUSED = 1
_NO_SERVER = 2


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Print the error, and end the program with the status for it."""
    try:
        yield
    except NoServerError as error:
        print_error(str(error), _NO_SERVER)
        sys.exit(_NO_SERVER)
    except ZmqTritonError as error:
        print_error(error.text, EXIT_REFUSED)
        sys.exit(EXIT_REFUSED)
