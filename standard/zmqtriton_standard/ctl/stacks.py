"""`zmqtriton-ctl stacks`: where the processes of a model are right now."""

from __future__ import annotations

from typing import Any

import click

from zmqtriton.sdk.models import asking
from zmqtriton_standard.ctl.asking import run_with_client
from zmqtriton_standard.ctl.output import print_result, with_format
from zmqtriton_standard.ctl.selecting import MODEL


@click.command()
@click.argument("model", type=MODEL)
@with_format
@click.pass_context
def stacks(context: click.Context, model: str, form: str) -> None:
    """Show the Python stacks of all threads of MODEL's processes.

    Nothing is interrupted, and a process that hangs shows where.
    """
    processes = run_with_client(context, lambda client: asking.read_stacks(client, model))
    print_result(form, processes, lambda: _print_stacks(processes))


def _print_stacks(processes: list[dict[str, Any]]) -> None:
    for number, stub in enumerate(processes):
        click.echo(f"{'' if not number else chr(10)}{stub['instance']}, pid {stub['pid']}:")
        for text in stub["lines"] or ["(it did not answer; it may be stopped, or still starting)"]:
            click.echo(f"  {text}")
