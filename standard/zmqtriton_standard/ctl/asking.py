"""Sends each command's questions to the selected server; reports failures, and exits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from zmqtriton.sdk.process import Client, NoServerError
from zmqtriton.sdk.wire import ZmqTritonError
from zmqtriton_standard.ctl.output import print_error, print_note

EXIT_REFUSED = 1
_NO_SERVER = 2


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Print an error of the block, and end the program with the exit status for it."""
    try:
        yield
    except NoServerError as error:
        print_error(str(error), _NO_SERVER)
        sys.exit(_NO_SERVER)
    except ZmqTritonError as error:
        print_error(error.text, EXIT_REFUSED)
        sys.exit(EXIT_REFUSED)


def run_with_client(
    context: click.Context, question: Callable[[Client], Any], *, to_change: bool = False
) -> Any:
    """Return the server's answer; end the program if it refuses or does not answer."""
    with exit_on_error(), context.obj.connect(to_change=to_change) as client:
        if client.other_count:
            which = f"{client.other_count + 1} servers run; this is {client.describe()}"
            print_note(f"{which}. Others by --server, see `zmqtriton-ctl servers`.")
        return question(client)


def change_model(
    context: click.Context,
    verb: str,
    model: str,
    *,
    timeout_s: float | None = None,
    **arguments: Any,
) -> Any:
    """Let the server carry out a call about a model; return the answer. "" names no model."""

    def question(client: Client) -> Any:
        client.check_model(model)
        return client.call(verb, {"model": model, **arguments}, timeout_s)

    return run_with_client(context, question, to_change=True)
