"""`zmqtriton-ctl stacks`: where the processes of a model are right now."""

from __future__ import annotations

import re
import time
from itertools import zip_longest
from typing import Any

import click

from zmqtriton.control_client import QUICK_TIMEOUT_S, Client
from zmqtriton_floor.errors import NotFound
from zmqtriton_standard.ctl import MODEL, check_name, print_result, run_with_client, with_format

#: Lines of Python's stack dumps (faulthandler), and those that name a thread's instance.
_STACK_LINE = re.compile(
    r"(Current thread|Thread|Stack) .*most recent call first|  (File |\.\.\.|<)|"
    r"Thread 0x\w+ is instance "
)
#: Written behind the stacks by a process that has a thread for each instance.
_WHOSE = re.compile(r"Thread (0x\w+) is instance (.+)")
_WHICH = re.compile(r"(?:Current thread|Thread) (0x\w+) ")
#: The first frame of the thread that writes the stacks.
_TAKES_SIGNALS = re.compile(r'  File ".*process\.py", line \d+ in await_signals')
_WITHIN_S = 3.0
_LOOK_EVERY_S = 0.1
#: Seconds without a new line after which the stacks count as complete.
_QUIET_S = 0.3
_ALL_LINES = 1 << 30


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


def read_stacks(client: Client, model: str, within_s: float = _WITHIN_S) -> list[dict[str, Any]]:
    """Return each process with the lines that it has written in this time."""
    after = client.call("logs", {"model": "", "lines": 1}, QUICK_TIMEOUT_S)["last"]
    stubs = client.call("stacks", {"model": model}, QUICK_TIMEOUT_S)
    if not stubs:
        check_name(client, model)
        raise NotFound(f"no process of model '{model}' runs")
    pids = {stub["pid"] for stub in stubs}
    written = _collect_stacks(client, model, after, pids, within_s)
    return [
        {
            **stub,
            "lines": lines_of_instance(
                [line["text"] for line in written if line["pid"] == stub["pid"]], stub["instance"]
            ),
        }
        for stub in stubs
    ]


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


def _collect_stacks(
    client: Client, model: str, after: int, pids: set[int], within_s: float
) -> list[dict[str, Any]]:
    """Collect the lines of stacks that these processes have written."""
    deadline_s = time.monotonic() + within_s
    stack_lines: list[dict[str, Any]] = []
    changed_s = time.monotonic()
    while time.monotonic() < deadline_s:
        arguments = {"model": model, "after": after, "lines": _ALL_LINES}
        answer = client.call("logs", arguments, QUICK_TIMEOUT_S)
        lines = [
            line
            for line in answer["lines"]
            if line["pid"] in pids and _STACK_LINE.match(line["text"])
        ]
        if len(lines) != len(stack_lines):
            changed_s, stack_lines = time.monotonic(), lines
        has_all = {line["pid"] for line in stack_lines} == pids
        if has_all and time.monotonic() - changed_s > _QUIET_S:
            break
        time.sleep(_LOOK_EVERY_S)
    return stack_lines
