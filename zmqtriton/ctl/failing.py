"""How a command ends that cannot do what it was asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from zmqtriton.ctl.client import NoServer
from zmqtriton_floor.errors import ZmqTritonError

REFUSED = 1
_NO_SERVER = 2
#: Triton's words, and what they mean.
_NOT_EXPLICIT = (
    "explicit model load / unload is not allowed if polling is enabled",
    "repository registration is not allowed if model control mode is not EXPLICIT",
)
_NEEDS_EXPLICIT = "; the server must have been started with --model-control-mode=explicit"


@contextmanager
def told() -> Iterator[None]:
    """Says what is wrong, and ends the program with the status for that."""
    try:
        yield
    except NoServer as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(_NO_SERVER)
    except ZmqTritonError as error:
        hint = _NEEDS_EXPLICIT if error.text in _NOT_EXPLICIT else ""
        click.echo(f"error: {error.text}{hint}", err=True)
        sys.exit(REFUSED)
