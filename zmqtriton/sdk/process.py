"""Processes of the server: `connect` is for those that ask, `Service` for those that answer."""

from __future__ import annotations

import argparse

from zmqtriton.control_client import NoServerError
from zmqtriton.embedded.connection import Connection, connect_by
from zmqtriton_frontends.serving.process import Service, run, run_local

__all__ = ["Service", "connect", "run", "run_local"]


def connect() -> Connection:
    """Connect to the server that has started this process, with the server's own rights.

    Such a process has `--lifeline FD` on its command line. Raises NoServerError without one.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--lifeline", type=int)
    lifeline = parser.parse_known_args()[0].lifeline
    if lifeline is None:
        raise NoServerError("a server must start this process: it has no --lifeline")
    return connect_by(lifeline)
