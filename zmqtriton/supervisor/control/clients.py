"""Figures of frontends about their clients: memory, connections, and counters that outlive them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KINDS = ("requests_bytes", "answers_bytes", "requests_refused", "answers_refused")
#: A guest is a user's process, and may tell anything.
_MAX_VALUES = 1024
_MAX_LETTERS = 128

#: A role, a counter, and the value of its label.
Key = tuple[str, str, str]


class Clients:
    def __init__(self) -> None:
        #: By serial number of the process.
        self._memory: dict[int, dict[str, int]] = {}
        self._connections: dict[int, int] = {}
        self._counts: dict[int, dict[Key, int]] = {}
        #: Of all processes, those that have ended included.
        self._totals: dict[Key, int] = {}

    def take(self, serial: int, figures: Mapping[str, Any]) -> None:
        """Take the figures of a process; values of another form do not count."""
        memory = _mapping(figures.get("memory"))
        if memory:
            self._memory[serial] = {kind: _number(memory.get(kind)) for kind in _KINDS}
        self._connections[serial] = _number(figures.get("connections"))
        before, now = self._counts.get(serial, {}), _read_counts(figures)
        for key, count in now.items():
            grown = count - before.get(key, 0)
            if grown > 0 and (key in self._totals or len(self._totals) < _MAX_VALUES):
                self._totals[key] = self._totals.get(key, 0) + grown
        self._counts[serial] = now

    def forget(self, serial: int) -> None:
        for figures in (self._memory, self._connections, self._counts):
            figures.pop(serial, None)

    def describe_process(self, serial: int) -> dict[str, Any]:
        """Return what the status has of a process; nothing if that told nothing."""
        described: dict[str, Any] = {}
        if serial in self._memory:
            described["client_memory"] = self._memory[serial]
        if serial in self._connections:
            described["connections"] = self._connections[serial]
        return described

    def describe(self) -> list[dict[str, Any]]:
        """Return the counters of all processes together."""
        return [
            {"role": role, "counter": counter, "label": label, "count": count}
            for (role, counter, label), count in self._totals.items()
        ]


def _read_counts(figures: Mapping[str, Any]) -> dict[Key, int]:
    role = str(figures.get("role", ""))[:_MAX_LETTERS]
    return {
        (role, str(counter)[:_MAX_LETTERS], str(label)[:_MAX_LETTERS]): _number(count)
        for counter, values in _mapping(figures.get("counts")).items()
        for label, count in _mapping(values).items()
    }


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> int:
    return value if type(value) is int else 0
