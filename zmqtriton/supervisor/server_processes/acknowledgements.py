"""Waits until processes have acknowledged all messages that were sent to them so far.

A load or unload is answered afterwards, so that a client with the answer finds it true in every
process. A process that dies counts as having acknowledged; so does one that stays silent for very
long, because it does not serve clients either.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from zmqtriton.supervisor.actions import Send
from zmqtriton.supervisor.plan import Plan, PlanTimer
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor import wire

ACKNOWLEDGEMENT_TIMEOUT_S = 30.0


class _PendingSync:
    def __init__(self, peers: set[int]) -> None:
        self.peers = peers
        self.over = Promise[None]()
        self.timer: PlanTimer | None = None


class _Probe(NamedTuple):
    peer: int
    number: int
    answered: Promise[None]


class Acknowledgements:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._numbers = itertools.count(1)
        self._waits: dict[int, _PendingSync] = {}
        self._probe: _Probe | None = None
        #: The oldest question that a process has not answered, and when it was asked, by peer.
        self._unanswered: dict[int, tuple[int, float]] = {}

    def sync(self, peers: Iterable[int]) -> Promise[None]:
        """Return a promise that is kept when all processes have acknowledged."""
        number = next(self._numbers)
        wait = _PendingSync(set(peers))
        if not wait.peers:
            return Promise.kept(None)
        self._waits[number] = wait
        wait.timer = self._plan.call_later(
            ACKNOWLEDGEMENT_TIMEOUT_S, lambda: self._on_timeout(number)
        )
        for peer in sorted(wait.peers):
            self._ask(peer, number)
        return wait.over

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
        for earlier in [n for n in self._waits if n <= number]:
            self._discard_peer(earlier, peer)
        probe = self._probe
        if probe is not None and probe.peer == peer and probe.number <= number:
            self._probe = None
            probe.answered()

    def transfer(self, before: int, peer: int) -> None:
        """Ask a successor of a dead process, after it has got the same messages."""
        self._unanswered.pop(before, None)
        for number, wait in self._waits.items():
            if before in wait.peers:
                wait.peers.discard(before)
                wait.peers.add(peer)
                self._ask(peer, number)

    def peer_ended(self, peer: int) -> None:
        self._unanswered.pop(peer, None)
        for number in list(self._waits):
            self._discard_peer(number, peer)

    def _discard_peer(self, number: int, peer: int) -> None:
        wait = self._waits.get(number)
        if wait is None:
            return
        wait.peers.discard(peer)
        if not wait.peers:
            self._finish(number, wait)

    def _finish(self, number: int, wait: _PendingSync) -> None:
        del self._waits[number]
        if wait.timer is not None:
            wait.timer.cancel()
        wait.over()

    def _on_timeout(self, number: int) -> None:
        wait = self._waits[number]
        silent = ", ".join(map(str, sorted(wait.peers)))
        self._plan.log("W", f"processes {silent} have not confirmed a change; going on")
        self._finish(number, wait)
