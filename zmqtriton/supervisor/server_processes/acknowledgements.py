"""Waits until processes have acknowledged all messages that were sent to them so far.

A load or unload is answered afterwards, so that a client with the answer finds it true in every
process. A process that dies counts as having acknowledged; so does one that stays silent for very
long, because it does not serve clients either.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from zmqtriton.supervisor.actions import Send
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor import wire

ACKNOWLEDGEMENT_TIMEOUT_S = 30.0


class _Probe(NamedTuple):
    peer: int
    number: int
    answered: Promise[None]


class Acknowledgements:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._numbers = itertools.count(1)
        #: The processes that have not acknowledged yet, and the promise that all will, by number.
        self._waits: dict[int, tuple[set[int], Promise[None]]] = {}
        self._probe: _Probe | None = None
        #: The oldest question that a process has not answered, and when it was asked, by peer.
        self._unanswered: dict[int, tuple[int, float]] = {}

    def sync(self, peers: Iterable[int]) -> Promise[None]:
        """Return a promise that is kept when all processes have acknowledged."""
        left, over = set(peers), Promise[None]()
        if not left:
            return Promise.kept(None)
        number = next(self._numbers)
        self._waits[number] = left, over
        late = self._plan.call_later(ACKNOWLEDGEMENT_TIMEOUT_S, lambda: self._on_timeout(number))
        over.at_end(late.cancel)
        over.at_end(partial(self._waits.pop, number))
        for peer in sorted(left):
            self._ask(peer, number)
        return over

    def _ask(self, peer: int, number: int) -> None:
        self._unanswered.setdefault(peer, (number, self._plan.now_s))
        self._plan.enqueue(Send(peer, wire.Sync(number)))

    def unanswered_s(self, peer: int) -> float:
        """Return the seconds that a process has left a question unanswered; 0 without one."""
        _, since_s = self._unanswered.get(peer, (0, self._plan.now_s))
        return self._plan.now_s - since_s

    def probe(self, peer: int) -> Promise[None]:
        """Return a promise of the process's own answer; until then it is not asked again."""
        if self._probe is None or self._probe.peer != peer:
            self._probe = _Probe(peer, next(self._numbers), Promise())
            self._plan.enqueue(Send(peer, wire.Sync(self._probe.number)))
            return self._probe.answered
        return Promise()

    def acknowledge(self, peer: int, number: int) -> None:
        """Process an answer, which also covers the earlier questions to the same process."""
        if self._unanswered.get(peer, (number + 1, 0.0))[0] <= number:
            del self._unanswered[peer]
        self._confirm(peer, number)
        probe = self._probe
        if probe is not None and probe.peer == peer and probe.number <= number:
            self._probe = None
            probe.answered()

    def transfer(self, before: int, peer: int) -> None:
        """Ask a successor of a dead process, after it has got the same messages."""
        self._unanswered.pop(before, None)
        for number, (left, _) in self._waits.items():
            if before in left:
                left.discard(before)
                left.add(peer)
                self._ask(peer, number)

    def peer_ended(self, peer: int) -> None:
        self._unanswered.pop(peer, None)
        self._confirm(peer)

    def _confirm(self, peer: int, number: float = math.inf) -> None:
        """Count the questions up to this number as answered by a process."""
        for each, (left, over) in [*self._waits.items()]:
            if each <= number:
                left.discard(peer)
                if not left:
                    over()

    def _on_timeout(self, number: int) -> None:
        left, over = self._waits[number]
        silent = ", ".join(map(str, sorted(left)))
        self._plan.log("W", f"processes {silent} have not confirmed a change; going on")
        over()
