"""The interface of an engine: it places one server on each of its nodes, and starts it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol


class Report(NamedTuple):
    """The state of a node, as its engine knows it."""

    #: What its server has announced last; None while there is none.
    announcement: Mapping[str, Any] | None = None
    #: The time since it was announced.
    age_s: float = 0.0
    #: Why there is no server; "" if there is one, or nothing is known.
    problem: str = ""


class Engine(Protocol):
    """Raises ZmqTritonError where it cannot start."""

    def start(self) -> None: ...

    def look(self) -> dict[str, Report]:
        """Return a report of each node by its name, within a second or two."""
        ...

    def stop(self) -> None:
        """Stop all servers in order, and wait for their end."""
        ...
