"""The orderly shutdown.

Frontends ask clients to leave, and clients end their open sequences. Then frontends finish their
requests, models are unloaded, and all other processes end. A caller ends before the models that it
calls, so that no admitted request fails. A second request to stop, or the end of the time allowed,
ends all processes at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from zmqtriton.roles import GUEST
from zmqtriton.supervisor.actions import Exit, StopListening
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.order import RetirementQueue
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.broker_counts import BrokerCounts
from zmqtriton.supervisor.server_processes.introductions import Introductions
from zmqtriton.supervisor.server_processes.peers import Peers
from zmqtriton.supervisor.server_processes.port_sharing import SETTLE_S
from zmqtriton.supervisor.settings import Policy
from zmqtriton.supervisor.states import GenerationState
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor import wire

#: Maximum seconds that a replacement waits for open sequences: clients that are not sent away
#: begin new ones all the time.
CROWDED_S = 10.0


class ShutdownPhase(Enum):
    RUNNING = "running"
    SEQUENCES = "sequences"  # open sequences go on; the server is not ready any more
    CLOSING = "closing"  # frontends finish their requests
    UNLOADING = "unloading"  # models end
    FINISHING = "finishing"  # broker and metrics end
    OVER = "over"


#: Phases with running requests of clients.
_WAITING = frozenset({ShutdownPhase.SEQUENCES, ShutdownPhase.CLOSING})


class ShutdownSequence:
    """Tells the phases in order."""

    def __init__(
        self,
        plan: Plan,
        peers: Peers,
        introductions: Introductions,
        counts: BrokerCounts,
        retirements: RetirementQueue,
        policy: Policy,
    ) -> None:
        self._plan = plan
        self._peers = peers
        self._introductions = introductions
        self._counts = counts
        self._retirements = retirements
        self._left_s = policy.exit_timeout_s
        self._tells_each = policy.tells_each_grpc_client
        self.phase = ShutdownPhase.RUNNING
        self._scope = plan.scope()
        self._sequences_ended = Promise[None]()

    @property
    def has_begun(self) -> bool:
        return self.phase is not ShutdownPhase.RUNNING

    def begin(self, status: int = 0) -> None:
        self._plan.log("I", "Waiting for in-flight requests to complete.")
        self._scope.tell(self._tell(status))
        self._scope.tell(self._count_down())

    async def _tell(self, status: int) -> None:
        """End sequences, frontends, models and all other processes, in this order."""
        if self._introductions.is_broker_ready:  # else open sequences are lost
            self.phase = ShutdownPhase.SEQUENCES
            await self._end_sequences()
        self.phase = ShutdownPhase.CLOSING
        self._plan.enqueue(StopListening())
        self._peers.stop_frontends(max(1, self._left_s) * 1000)
        await self._plan.until(lambda: self._peers.has_stopped_frontends)
        self.phase = ShutdownPhase.UNLOADING
        self._plan.log("I", "All models are stopped, unloading models")
        self._report()
        for generation in list(self._alive()):
            generation.has_clients = False
            self._retirements.retire_after_callers(generation)
        await self._plan.until(lambda: not any(self._alive()))
        self.phase = ShutdownPhase.FINISHING
        self._peers.stop_all(max(1, self._left_s) * 1000)
        # guests may be halted, and end when they like
        await self._plan.until(lambda: all(peer.role == GUEST for peer in self._peers.all()))
        self.exit_now(status)

    @property
    def _has_sequences(self) -> bool:
        configs = (generation.final_config for generation in self._alive())
        return any(config is not None and config.has_sequences for config in configs)

    async def _end_sequences(self) -> None:
        """Let clients end their sequences; the broker reports when none is open."""
        self._peers.leave()
        if self._peers.has_successor and not self._tells_each:
            self._plan.call_later(CROWDED_S, self.on_sequences_ended)
        # until then clients hear that they are to go, and those connect who had begun to
        if self._peers.port_sharing.is_shared or self._has_sequences:
            await self._plan.within(SETTLE_S, self._sequences_ended)
        if not self._sequences_ended.is_over:
            self._introductions.send_to_broker(wire.Retire(0))
        await self._sequences_ended

    def on_sequences_ended(self) -> None:
        """Handle the broker's report that no client has an open sequence."""
        if self.phase is ShutdownPhase.SEQUENCES:
            self._sequences_ended()

    def exit_now(self, status: int = 1) -> None:
        """End all processes now."""
        if self.phase is not ShutdownPhase.OVER:
            self.phase = ShutdownPhase.OVER
            self._scope.cancel()
            self._plan.enqueue(Exit(status))

    async def _count_down(self) -> None:
        while self._left_s > 0:
            self._report()
            self._left_s -= 1
            await self._plan.pause(1.0)
        self._plan.log("E", "Exit timeout expired. Exiting immediately.")
        self.exit_now()

    def _report(self) -> None:
        left_s = self._left_s
        if self.phase in _WAITING:
            self._plan.tell(self._tell_in_flight(left_s))
        else:
            alive = list(self._alive())
            text = f"Found {len(alive)} live models and 0 in-flight non-inference requests"
            self._plan.log("I", f"Timeout {left_s}: {text}")
            for each in alive:
                self._plan.log("V", f"{each.blueprint.name} v{each.version}: UNLOADING")

    async def _tell_in_flight(self, left_s: int) -> None:
        counts = (await self._counts.request())["counts"] or []
        if self.phase not in _WAITING:
            return  # the answer came late
        # As in Triton, a model with sequences reports these and not its requests.
        many = [(entry, entry["sequences"] or entry["unanswered"]) for entry in counts]
        busy = [(entry, number) for entry, number in many if number]
        text = f"Timeout {left_s}: Found {len(busy)} model versions that have in-flight inferences"
        self._plan.log("I", text)
        for entry, number in busy:
            name = f"Model '{entry['model']}' (version {entry['version']})"
            self._plan.log("I", f"{name} has {number} in-flight inferences")

    def _alive(self) -> Iterator[Generation]:
        return (
            generation
            for generation in self._retirements.generations.values()
            if generation.state is not GenerationState.ENDED
        )
