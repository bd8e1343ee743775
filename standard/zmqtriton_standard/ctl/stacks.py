"""`zmqtriton-ctl stacks`: where the processes of a model are right now."""

from __future__ import annotations

import re
from typing import Any

import click

from zmqtriton.sdk.process import Client, control_client
from zmqtriton.sdk.wire import NotFound
from zmqtriton_standard.ctl.asking import check_name, run_with_client
from zmqtriton_standard.ctl.output import print_result, with_format
from zmqtriton_standard.ctl.selecting import MODEL

#: Written behind the stacks by a process that has a thread for each instance.
_WHOSE = re.compile(r"Thread (0x\w+) is instance (.+)")
_HEAD = re.compile(r"(?:Current thread|Thread|Stack) (0x\w+)?.*most recent call first")
#: A frame of the thread that writes the stacks.
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
    client: Client, model: str, within_s: float = control_client.QUICK_TIMEOUT_S
) -> list[dict[str, Any]]:
    """Return each process with the lines that it has written."""
    stubs = client.call("stacks", {"model": model}, within_s)
    if not stubs:
        check_name(client, model)
        raise NotFound(f"no process of model '{model}' runs; `zmqtriton-ctl explain` says why")
    return [{**stub, "lines": lines_of_instance(stub["lines"], stub["instance"])} for stub in stubs]


def lines_of_instance(lines: list[str], instance: str) -> list[str]:
    """Return the stacks of a process without those of its other instances, if it has several."""
    owners = {match[1]: match[2] for match in map(_WHOSE.match, lines) if match}
    stacks: list[tuple[str, list[str]]] = []
    for line in lines:
        if head := _HEAD.match(line):
            stacks.append((head[1] or "", []))
        if stacks and not _WHOSE.match(line):
            stacks[-1][1].append(line)
    return [
        line
        for thread, stack in stacks
        if owners.get(thread, instance) == instance and not any(map(_TAKES_SIGNALS.match, stack))
        for line in stack
    ]


def _print_stacks(processes: list[dict[str, Any]]) -> None:
    for number, stub in enumerate(processes):
        click.echo(f"{'' if not number else chr(10)}{stub['instance']}, pid {stub['pid']}:")
        for text in stub["lines"] or ["(it did not answer; it may be stopped, or still starting)"]:
            click.echo(f"  {text}")
