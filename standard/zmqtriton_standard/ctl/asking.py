"""Asks the server that is meant, for every command; the end of one that fails."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from zmqtriton.sdk.models import Finding
from zmqtriton.sdk.process import Client, Hook, NoServerError, addons, control_client
from zmqtriton.sdk.wire import NotFound, ZmqTritonError, errors
from zmqtriton_standard.ctl.output import print_error, print_note

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


def run_with_client(
    context: click.Context, question: Callable[[Client], Any], *, to_change: bool = False
) -> Any:
    """Return the server's answer; end the program if it refuses or does not answer."""
    with exit_on_error(), control_client.connect(context.obj, to_change=to_change) as client:
        if client.other_count:
            which = f"{client.other_count + 1} servers run; this is {client.describe()}"
            print_note(f"{which}. Others by --server, see `zmqtriton-ctl servers`.")
        return question(client)


def check_name(client: Client, model: str) -> None:
    """Raise NotFound for a name that no repository has and that is not served either.

    "" names no model, and is right where a command may do without one.
    """
    if not model:
        return
    index = client.call("index", {"ready": False}, control_client.QUICK_TIMEOUT_S)
    names = [entry["name"] for entry in index]
    if model not in names:
        raise unknown_model(model, names)


def change_model(
    context: click.Context,
    verb: str,
    model: str,
    *,
    timeout_s: float | None = None,
    **arguments: Any,
) -> Any:
    """Have the server do something with a model, and return the answer; "" names no model."""

    def question(client: Client) -> Any:
        check_name(client, model)
        return client.call(verb, {"model": model, **arguments}, timeout_s)

    return run_with_client(context, question, to_change=True)


def unknown_model(model: str, names: Iterable[str]) -> NotFound:
    """Return the error for a name outside of these."""
    close = errors.closest_match(model, names)
    meant = f"; did you mean '{close}'?" if close else "; `zmqtriton-ctl models` lists them"
    return NotFound(f"there is no model '{model}'{meant}")


#: Yields why a version is not ready.
EXPLANATION = Hook[Callable[[Client, str, int], Iterator[Finding]]]("ctl.explanation")


def explain(client: Client, model: str = "", version: int = 0) -> Iterator[Finding]:
    """Yield the findings about a model, or about each that is in trouble, the worst first."""
    for explain_model in EXPLANATION.all_of(addons.offers()):
        yield from explain_model(client, model, version)
