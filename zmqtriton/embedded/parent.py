"""The way of a process to the server that has started it."""

from __future__ import annotations

import argparse

from zmqtriton.control_client import NoServerError
from zmqtriton.embedded.connection import Connection
from zmqtriton.embedded.guest import Guest
from zmqtriton_floor.lifeline import Lifeline


def connect() -> Connection:
    """Connect to the server that has started this process, with the server's own rights.

    Such a process has `--lifeline FD` on its command line. Raises NoServerError without one.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--lifeline", type=int)
    lifeline = parser.parse_known_args()[0].lifeline
    if lifeline is None:
        raise NoServerError("no server has started this process: it has no --lifeline")
    return Connection(Guest(Lifeline.inherited(lifeline), is_invited=True))
