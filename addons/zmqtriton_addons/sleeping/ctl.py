"""`zmqtriton-ctl sleep` and `wake`: a model gives its memory back, and keeps its process."""

from __future__ import annotations

from typing import Any

import click

from zmqtriton.control_client import Client
from zmqtriton_addons.ctl import MODEL, check_name, print_result, run_with_client, with_format


@click.command()
@click.argument("model", type=MODEL)
@with_format
@click.pass_context
def sleep(context: click.Context, model: str, form: str) -> None:
    """Have MODEL give its memory back by its sleep(), and keep its processes.

    The next request, or `wake`, has it call its wake_up(). A model that has requests does not
    sleep.
    """
    _print(form, _call(context, "sleep", model), "asleep")


@click.command()
@click.argument("model", type=MODEL)
@with_format
@click.pass_context
def wake(context: click.Context, model: str, form: str) -> None:
    """Have MODEL wake up, before a request does."""
    _print(form, _call(context, "wake", model), "awake")


def _call(context: click.Context, verb: str, model: str) -> dict[str, Any]:
    def question(client: Client) -> Any:
        check_name(client, model)
        return client.call(verb, {"model": model})

    answer: dict[str, Any] = run_with_client(context, question, to_change=True)
    return answer


def _print(form: str, answer: dict[str, Any], state: str) -> None:
    count = answer["instances"]
    text = f"{answer['model']}: {count} instance{'s' if count > 1 else ''} {state}"
    print_result(form, answer, text)
