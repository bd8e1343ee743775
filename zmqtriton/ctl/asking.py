"""Asks the server that is meant, for every command."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from zmqtriton.control_client.client import QUICK_TIMEOUT_S, Client, connect
from zmqtriton.ctl.failing import exit_on_error
from zmqtriton.ctl.output import print_note
from zmqtriton_floor.errors import NotFound, closest_match


def run_with_client(
    context: click.Context, question: Callable[[Client], Any], *, to_change: bool = False
) -> Any:
    """Return the server's answer; end the program if it refuses or does not answer."""
    with exit_on_error(), connect(context.obj, to_change=to_change) as client:
        if client.other_count:
            which = f"{client.other_count + 1} servers run; this is {client.describe()}"
            print_note(f"{which}. Others by --server, see `zmqtriton-ctl servers`.")
        return question(client)


def check_name(client: Client, model: str) -> None:
    """Raise NotFound for a name that no repository has and that is not served either."""
    index = client.call("index", {"ready": False}, QUICK_TIMEOUT_S)
    names = [entry["name"] for entry in index]
    if model not in names:
        raise unknown_model(model, names)


def unknown_model(model: str, names: Iterable[str]) -> NotFound:
    """Return the error for a name outside of these."""
    close = closest_match(model, names)
    meant = f"; did you mean '{close}'?" if close else "; `zmqtriton-ctl models` lists them"
    return NotFound(f"there is no model '{model}'{meant}")
