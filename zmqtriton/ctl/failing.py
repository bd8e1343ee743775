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


@contextmanager
def told() -> Iterator[None]:
    """Says what is wrong, and ends the program with the status for that."""
    try:
        yield
    except NoServer as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(_NO_SERVER)
    except ZmqTritonError as error:
        click.echo(f"error: {error.text}", err=True)
        sys.exit(REFUSED)
