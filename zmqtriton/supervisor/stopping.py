"""The end in order: frontends finish what they have, then models are unloaded, then the rest ends.

Whoever calls is stopped after whom they call, so that nothing accepted fails. A second request to
stop, or the end of the time given, ends everything at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import Any

from zmqtriton.supervisor.actions import Exit
from zmqtriton.supervisor.counts import BrokerCounts
from zmqtriton.supervisor.generation import Generation
from zmqtriton.supervisor.peers import Peers
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.states import GenerationState


class Phase(Enum):
    RUNNING = "running"
    CLOSING = "closing"  # frontends finish
    UNLOADING = "unloading"  # models end
    FINISHING = "finishing"  # broker and metrics end
    OVER = "over"


class Stopping:
    """`proceed` is called after everything that happens."""

    def __init__(
        self,
        plan: Plan,
        peers: Peers,
        generations: Callable[[], Collection[Generation]],
        counts: BrokerCounts,
        timeout_s: int,
    ) -> None:
        self._plan = plan
        self._peers = peers
        self._generations = generations
        self._counts = counts
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
        self.phase = Phase.CLOSING
        self._plan.log("I", "Waiting for in-flight requests to complete.")
        self._peers.close(self._left_s * 1000)
        self._tick()

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
        if self.phase is Phase.CLOSING:
            self._counts.ask(lambda found: self._tell_in_flight(left_s, found["counts"] or []))
            return
        text = f"Found {len(self._alive())} live models and 0 in-flight non-inference requests"
        self._plan.log("I", f"Timeout {left_s}: {text}")

    def _tell_in_flight(self, left_s: int, counts: Collection[dict[str, Any]]) -> None:
        if self.phase is not Phase.CLOSING:
            return  # it was answered late
        busy = [entry for entry in counts if entry["unanswered"]]
        text = f"Timeout {left_s}: Found {len(busy)} model versions that have in-flight inferences"
        self._plan.log("I", text)
        for entry in busy:
            name = f"Model '{entry['model']}' (version {entry['version']})"
            self._plan.log("I", f"{name} has {entry['unanswered']} in-flight inferences")

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
        return [g for g in self._generations() if g.state is not GenerationState.ENDED]
