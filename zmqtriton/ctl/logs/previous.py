"""The processes that the instances of a model had before those that run. Does no I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Document = Mapping[str, Any]


@dataclass(frozen=True)
class PreviousProcess:
    """A process of an instance that is dead."""

    instance: str
    pid: int
    #: Why it died, as the server says; "" if another one has died since, or its instance is gone.
    reason: str
    lines: Sequence[dict[str, Any]]


def find_previous(
    model: str, instance: str, status: Document, kept: Iterable[Document]
) -> list[PreviousProcess]:
    """Return the last dead process of each instance that is meant; "" means any.

    If that wrote nothing, the last one that did comes first. `kept` has what the server kept of
    each process, the one that wrote last at the end.
    """
    stubs = [process for process in status["processes"] if process["role"] == "stub"]
    living = {stub["pid"] for stub in stubs}
    newest: dict[str, PreviousProcess] = {
        process["instance"]: PreviousProcess(
            process["instance"], process["pid"], "", process["lines"]
        )
        for process in kept
        if process["pid"] not in living and _is_meant(process, model, instance)
    }
    processes = list(newest.values())
    for stub in stubs:
        if not (_is_meant(stub, model, instance) and stub["last_reason"]):
            continue
        died = PreviousProcess(stub["instance"], stub["last_pid"], stub["last_reason"], ())
        written = newest.get(died.instance)
        if written is not None and written.pid == died.pid:
            processes.remove(written)
            died = replace(died, lines=written.lines)
        processes.append(died)
    return sorted(processes, key=lambda process: process.instance)


def known_instances(model: str, status: Document, kept: Iterable[Document]) -> Collection[str]:
    """Return the names of the instances that there are or were."""
    rows = [process for process in status["processes"] if process["role"] == "stub"]
    matches = [row for row in (*rows, *kept) if _is_meant(row, model, "")]
    return sorted({row["instance"] for row in matches})


def _is_meant(row: Document, model: str, instance: str) -> bool:
    return model in ("", row["model"]) and instance in ("", row["instance"])
