"""One question to several repositories, of which some may not answer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

from zmqtriton.supervisor.plan import Timer

_Key = TypeVar("_Key", bound=Hashable)


#: Calls later.
Clock = Callable[[float, Callable[[], None]], Timer]


class Gathering(Generic[_Key]):
    """The answers by key. `decide` is called when it may be over, until it says so."""

    def __init__(self, keys: Iterable[_Key], decide: Callable[[Gathering[_Key]], bool]) -> None:
        self.pending = set(keys)
        self.answers: dict[_Key, Any] = {}
        self._decide = decide
        self._timer: Timer | None = None
        #: The time for which all are waited for has passed.
        self.is_late = False
        self.is_over = False

    def begin(self, call_later: Clock, patience_s: float) -> None:
        """Decide for the first time: with nobody to wait for, it is over at once."""
        self._timer = call_later(patience_s, self._on_late)
        self._look()

    def take(self, key: _Key, answer: Any) -> None:
        if key in self.pending:
            self.pending.discard(key)
            self.answers[key] = answer
            self._look()

    def end(self) -> None:
        """Decide no more."""
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def _on_late(self) -> None:
        self.is_late = True
        self._look()

    def _look(self) -> None:
        if not self.is_over and self._timer is not None and self._decide(self):
            self.end()
