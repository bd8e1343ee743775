"""The end in order: clients end what sequences they have begun, frontends finish what they have,
then models are unloaded, then the rest ends.

Whoever calls is stopped after whom they call, so that nothing accepted fails. A second request to
stop, or the end of the time given, ends everything at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import Any

from zmqtriton.supervisor.actions import Exit, StopListening
from zmqtriton.supervisor.fleet.introductions import Introductions
from zmqtriton.supervisor.fleet.peers import Peers
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.on_demand.broker_counts import BrokerCounts
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.states import GenerationState
from zmqtriton_floor import wire


class Phase(Enum):
    RUNNING = "running"
    SEQUENCES = "sequences"  # those that are open go on; the server is not ready any more
    CLOSING = "closing"  # frontends finish
    UNLOADING = "unloading"  # models end
    FINISHING = "finishing"  # broker and metrics end
    OVER = "over"


#: What clients have begun is still under way.
_WAITING = frozenset({Phase.SEQUENCES, Phase.CLOSING})


class ShutdownSequence:
    """`proceed` is called after everything that happens."""

    def __init__(
        self,
        plan: Plan,
        peers: Peers,
        introductions: Introductions,
        counts: BrokerCounts,
        timeout_s: int,
    ) -> None:
        self._plan = plan
        self._peers = peers
        self._introductions = introductions
        self._counts = counts
        self.generations: Callable[[], Collection[Generation]]
        #: Retires a generation when its callers have ended.
        self.leave: Callable[[Generation], None]
        self._left_s = timeout_s
        self._status = 0
        self.phase = Phase.RUNNING

    @property
    def has_begun(self) -> bool:
        return self.phase is not Phase.RUNNING

    def begin(self, status: int = 0) -> None:
        self._status = status
        self._plan.log("I", "Waiting for in-flight requests to complete.")
        if self._introductions.is_broker_ready:
            self.phase = Phase.SEQUENCES
            self._peers.refuse_new()
            self._introductions.tell_broker(wire.Retire(0))
        else:  # what was open is lost
            self._close()
        self._tick()

    def sequences_are_over(self) -> None:
        """The broker says that no client has one that is open."""
        if self.phase is Phase.SEQUENCES:
            self._close()

    def _close(self) -> None:
        self.phase = Phase.CLOSING
        self._plan.do(StopListening())
        self._peers.close(max(1, self._left_s) * 1000)

    def force(self, status: int = 1) -> None:
        """Ends everything now."""
        if self.phase is not Phase.OVER:
            self.phase = Phase.OVER
            self._plan.do(Exit(status))

    def _tick(self) -> None:
        if self.phase is Phase.OVER:
            return
        if self._left_s <= 0:
            self._plan.log("E", "Exit timeout expired. Exiting immediately.")
            self.force()
            return
        self._report()
        self._left_s -= 1
        self._plan.after(1.0, self._tick)

    def _report(self) -> None:
        left_s = self._left_s
        if self.phase in _WAITING:
            self._counts.ask(lambda found: self._tell_in_flight(left_s, found["counts"] or []))
            return
        text = f"Found {len(self._alive())} live models and 0 in-flight non-inference requests"
        self._plan.log("I", f"Timeout {left_s}: {text}")

    def _tell_in_flight(self, left_s: int, counts: Collection[dict[str, Any]]) -> None:
        if self.phase not in _WAITING:
            return  # it was answered late
        # As Triton does: of a model with sequences these are counted, and not their requests.
        many = [(entry, entry["sequences"] or entry["unanswered"]) for entry in counts]
        busy = [(entry, number) for entry, number in many if number]
        text = f"Timeout {left_s}: Found {len(busy)} model versions that have in-flight inferences"
        self._plan.log("I", text)
        for entry, number in busy:
            name = f"Model '{entry['model']}' (version {entry['version']})"
            self._plan.log("I", f"{name} has {number} in-flight inferences")

    def proceed(self) -> None:
        if self.phase is Phase.CLOSING and self._peers.is_closed:
            self.phase = Phase.UNLOADING
            self._plan.log("I", "All models are stopped, unloading models")
            self._report()
            for generation in self._alive():
                self.leave(generation)
        if self.phase is Phase.UNLOADING and not self._alive():
            self.phase = Phase.FINISHING
            self._peers.finish(max(1, self._left_s) * 1000)
        if self.phase is Phase.FINISHING and not self._peers.all():
            self.force(self._status)

    def _alive(self) -> list[Generation]:
        return [g for g in self.generations() if g.state is not GenerationState.ENDED]
