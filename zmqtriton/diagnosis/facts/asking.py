"""Questions to a running server that take several calls, and the meaning of answers' rows."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zmqtriton.control_client import Client
from zmqtriton.figures import format_duration
from zmqtriton_floor.errors import NotFound
from zmqtriton_floor.reasons import AT_REST

#: Minimum seconds of a wait for the reader of the log that is reported.
_UNREAD_S = 5.0
#: Written behind the stacks by a process that has a thread for each instance.
_WHOSE = re.compile(r"Thread (0x\w+) is instance (.+)")
_HEAD = re.compile(r"(?:Current thread|Thread|Stack) (0x\w+)?.*most recent call first")
#: A frame of the thread that writes the stacks.
_TAKES_SIGNALS = re.compile(r'  File ".*process\.py", line \d+ in await_signals')
#: Seconds; each process that serves clients has five of them.
_CLIENTS_WITHIN_S = 10.0


def needs_attention(entry: Mapping[str, Any]) -> bool:
    """Return True for a version that should serve and does not."""
    state = entry.get("state", "")
    is_well = state in frozenset({"READY", ""}) and (bool(state) or "why" not in entry)
    return not is_well and entry.get("why", {}).get("kind") not in AT_REST


def describe_log(log: Mapping[str, Any]) -> str:
    """Return the lost lines of the log and the wait for its reader in words, or ""."""
    parts = []
    if lost := log.get("lost_lines"):
        parts.append(f"{lost} lines of the log are lost")
    if log.get("unread_s", 0.0) >= _UNREAD_S:
        parts.append(f"nobody has read the log for {format_duration(log['unread_s'])}")
    return "; ".join(parts)


def read_stacks(
    client: Client, model: str, within_s: float = Client.QUICK_TIMEOUT_S
) -> list[dict[str, Any]]:
    """Return each process with the lines that it has written."""
    stubs = client.call("stacks", {"model": model}, within_s)
    if not stubs:
        client.check_model(model)
        raise NotFound(f"no process of model '{model}' runs; `zmqtriton-ctl explain` says why")
    return [{**stub, "lines": lines_of_instance(stub["lines"], stub["instance"])} for stub in stubs]


def lines_of_instance(lines: list[str], instance: str) -> list[str]:
    """Return the lines with the stacks of one instance: a process may have several instances."""
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


def read_rates(
    client: Client, interval_s: float, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Return the clients with their rates in the next seconds, the busiest first."""
    before, began_s = ask_clients(client, tell), time.monotonic()
    time.sleep(interval_s)
    return rates(before, ask_clients(client, tell), time.monotonic() - began_s)


def rates(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], seconds: float
) -> list[dict[str, Any]]:
    """Return rows of clients with their rates between two readings, the busiest first."""
    keys = ("requests", "received_bytes")
    earlier = {_key(row): row for row in _sums(before)}
    rows = []
    for row in _sums(after):
        last = earlier.get(_key(row), {})
        # less than before if connections have gone
        grown = [max(0, row.pop(key) - last.get(key, 0)) / seconds for key in keys]
        rows.append(row | {"requests_per_s": grown[0], "received_bytes_per_s": grown[1]})
    return sorted(
        rows,
        key=lambda row: (row["requests_per_s"], row["busy"], row["connections"]),
        reverse=True,
    )


def _sums(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each client and protocol: the sum over all frontends."""
    sums: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        total = sums.setdefault(_key(row), dict.fromkeys(row, 0))
        for name, value in row.items():
            total[name] = value if isinstance(value, str) else total[name] + value
    return [*sums.values()]


def _key(row: Mapping[str, Any]) -> tuple[str, ...]:
    return row["protocol"], row["address"], row["token"]


def ask_clients(client: Client, tell: Callable[[str], None], **wish: Any) -> list[dict[str, Any]]:
    """Return the rows of clients; `tell` is called where processes are silent."""
    answer = client.call("connections", wish, _CLIENTS_WITHIN_S)
    if silent := answer["silent_processes"]:
        tell(f"{silent} processes that serve clients have not answered in time")
    return list(answer["connections"])
