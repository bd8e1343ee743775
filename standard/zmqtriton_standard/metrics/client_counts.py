"""Frontends' figures about clients, as the supervisor keeps them for metrics. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from zmqtriton.sdk.supervisor import ControlCall, CoreParts, Feature, Verb

_KINDS = ("requests_bytes", "answers_bytes", "requests_refused", "answers_refused")
#: A guest is a user's process, and may tell anything.
_MAX_VALUES = 1024
_MAX_LETTERS = 128

#: A role, a counter, and the value of its label.
Key = tuple[str, str, str]


class _Figures(NamedTuple):
    """The last report of a frontend."""

    #: Bytes of clients, by kind.
    memory: Mapping[str, int] = {}
    connections: int = 0
    counts: Mapping[Key, int] = {}


class ClientCounts(Feature):
    """Memory and connections of clients, and counters that outlive their frontends."""

    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        #: Gunicorn forks the processes of HTTP.
        self._roles = {*core.policy.frontend_roles, "http", "guest"}
        #: Reports by the serial of their frontend.
        self._figures: dict[int, _Figures] = {}
        #: Counters of all frontends together, those that have ended included.
        self._totals: dict[Key, int] = {}

    @property
    def verbs(self) -> Mapping[str, Verb]:
        return {"clients": Verb(self._take)}

    def _take(self, call: ControlCall) -> None:
        """Record the figures of a process; values of other types do not count."""
        memory = _mapping(call.arguments.get("memory"))
        now = _Figures(
            {kind: _number(memory.get(kind)) for kind in _KINDS} if memory else {},
            _number(call.arguments.get("connections")),
            _read_counts(call.arguments),
        )
        before = self._figures.get(call.caller, _Figures())
        for key, count in now.counts.items():
            grown = count - before.counts.get(key, 0)
            if grown > 0 and (key in self._totals or len(self._totals) < _MAX_VALUES):
                self._totals[key] = self._totals.get(key, 0) + grown
        living = self._audience.serials(self._roles)
        self._figures = {s: each for s, each in self._figures.items() if s in living}
        self._figures[call.caller] = now

    def describe_process(self, process: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the figures of a process; empty if it has reported nothing."""
        if process.get("serial", 0) not in self._figures:
            return {}
        memory, connections, _ = self._figures[process["serial"]]
        return {"connections": connections, **({"client_memory": memory} if memory else {})}

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the counters of all processes together."""
        return {
            "clients": [
                {"role": role, "counter": counter, "label": label, "count": count}
                for (role, counter, label), count in self._totals.items()
            ]
        }


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
