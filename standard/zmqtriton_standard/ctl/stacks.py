"""`zmqtriton-ctl stacks`: where the processes of a model are right now."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Any

import click

from zmqtriton.control_client import QUICK_TIMEOUT_S, Client
from zmqtriton_floor.errors import NotFound
from zmqtriton_standard.ctl import MODEL, check_name, print_result, run_with_client, with_format

#: Written behind the stacks by a process that has a thread for each instance.
_WHOSE = re.compile(r"Thread (0x\w+) is instance (.+)")
_WHICH = re.compile(r"(?:Current thread|Thread) (0x\w+) ")
#: The first frame of the thread that writes the stacks.
_TAKES_SIGNALS = re.compile(r'  File ".*process\.py", line \d+ in await_signals')


@click.command()
@click.argument("model", type=MODEL)
@with_format
@click.pass_context
def stacks(context: click.Context, model: str, form: str) -> None:
    """Show the Python stacks of all threads of MODEL's processes.

    Nothing is interrupted, and a process that hangs shows where.
    """
    processes = run_with_client(context, lambda client: read_stacks(client, model))
    print_result(form, processes, lambda: _print_stacks(processes))


def read_stacks(
    client: Client, model: str, within_s: float = QUICK_TIMEOUT_S
) -> list[dict[str, Any]]:
    """Return each process with the lines that it has written."""
    stubs = client.call("stacks", {"model": model}, within_s)
    if not stubs:
        check_name(client, model)
        raise NotFound(f"no process of model '{model}' runs")
    return [{**stub, "lines": lines_of_instance(stub["lines"], stub["instance"])} for stub in stubs]


def lines_of_instance(lines: list[str], instance: str) -> list[str]:
    """Return the stacks of a process without those of its other instances, if it has several."""
    owners = {match[1]: match[2] for match in map(_WHOSE.match, lines) if match}
    kept, is_kept = [], True
    for line, below in zip_longest(lines, lines[1:], fillvalue=""):
        if _WHOSE.match(line):
            continue
        stack = _WHICH.match(line)
        if stack:
            is_of_model = not _TAKES_SIGNALS.match(below)
            is_kept = is_of_model and owners.get(stack[1], instance) == instance
        if is_kept:
            kept.append(line)
    return kept


def _print_stacks(processes: list[dict[str, Any]]) -> None:
    for number, stub in enumerate(processes):
        click.echo(f"{'' if not number else chr(10)}{stub['instance']}, pid {stub['pid']}:")
        for text in stub["lines"] or ["(it did not answer; it may be stopped, or still starting)"]:
            click.echo(f"  {text}")
