"""Events of processes, passed on to the part of the core that each concerns. Does no I/O."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zmqtriton.roles import GUEST
from zmqtriton.supervisor import states
from zmqtriton.supervisor.actions import Signal
from zmqtriton.supervisor.control.control import ControlCallHandler
from zmqtriton.supervisor.control.regions import RegionRegistry
from zmqtriton.supervisor.control.server_status import ServerStatus
from zmqtriton.supervisor.control.succession import Succession
from zmqtriton.supervisor.helper_processes import HelperOwner
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.instance import StubPlace, stub_event
from zmqtriton.supervisor.models.model import ServedModel
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.acknowledgements import Acknowledgements
from zmqtriton.supervisor.server_processes.introductions import Introductions
from zmqtriton.supervisor.server_processes.peers import Peers, ServerProcess
from zmqtriton.supervisor.server_processes.shutdown import ShutdownSequence
from zmqtriton.supervisor.states import InstanceState
from zmqtriton_floor import wire
from zmqtriton_floor.reasons import Kind, Reason

#: A dying process closes its connections before its death is seen.
_DEATH_WITHIN_S = 0.2
#: Seconds that a living process may take to answer; they are enough on a busy machine.
_ANSWER_WITHIN_S = 10.0
_LOST = "its connection to the broker has ended"
#: A stub in another state has closed the connection itself, or is about to end.
_CONNECTED_STATES = frozenset({InstanceState.LOADING, InstanceState.READY, InstanceState.DRAINING})


class EventRouter:
    """Receives events of processes: a method for each event."""

    def __init__(
        self,
        plan: Plan,
        models: Mapping[str, ServedModel],
        generations: Mapping[int, Generation],
        *,
        peers: Peers,
        introductions: Introductions,
        regions: RegionRegistry,
        helpers: Sequence[HelperOwner],
        stopping: ShutdownSequence,
        status: ServerStatus,
        succession: Succession,
        calls: ControlCallHandler,
        acknowledgements: Acknowledgements,
    ) -> None:
        self._plan = plan
        self._models = models
        self._generations = generations
        self._peers = peers
        self._introductions = introductions
        self._stubs = introductions.stubs
        self._regions = regions
        self._helpers = helpers
        self._stopping = stopping
        self._status = status
        self.succession = succession
        #: The control calls of stubs, of frontends and of the control socket.
        self._calls = calls
        self._acknowledgements = acknowledgements
        self._lost_connections = LostConnections(plan, peers, introductions, acknowledgements, self)

    def process_started(self, serial: int, pid: int, started_s: float) -> None:
        peer = self._peers.find_peer(serial)
        if peer is not None:
            self._peers.process_started(peer, pid, started_s)
        else:
            self._status.process_started(serial, pid, started_s)
            for helper in self._helpers:
                helper.process_started(serial, pid, started_s)
            self.tell_stub(serial, states.ProcessStarted(pid))

    def worker_forked(self, pid: int, started_s: float) -> int:
        """Gunicorn has forked; return the serial number of the new process's lifeline."""
        serial = self._plan.new_serial()
        self._peers.worker_forked(serial, pid, started_s)
        return serial

    def process_ended(
        self,
        serial: int,
        reason: Reason,
        last_words: str = "",
        crash: str = "",
        had_begun: bool = False,
    ) -> None:
        """Handle the death of a process, after all messages that it had sent."""
        peer = self._peers.find_peer(serial)
        if peer is not None:
            self._peers.process_ended(peer, reason)
            if peer.role == GUEST:
                self._end_bindings(serial, reason)
            if self._peers.is_broker_lost:
                self._stopping.exit_now()
            self._regions.frontend_died(serial)
        else:
            self._status.process_ended(serial)
            for helper in self._helpers:
                helper.process_ended(serial, reason, last_words)
            self._acknowledgements.peer_ended(serial)
            self.tell_stub(serial, states.ProcessExited(reason, last_words, crash, had_begun))
        self._introductions.end_memory(serial, reason.text)

    def _end_bindings(self, guest: int, reason: Reason) -> None:
        """Unload the models of a guest that has left, with this reason in the index."""
        text = f"the process that has bound it has left: {reason.text}"
        for model in self._models.values():
            if guest in model.guests:
                model.evict(Reason.of(Kind.GUEST_LEFT, text, reason))

    def caller_ended(self, serial: int) -> None:
        """Handle the end of a caller on the control socket, which has closed its end or is dead."""
        self.succession.caller_ended(serial)

    def process_frozen(self, serial: int) -> None:
        """Handle a process that was stopped by a signal and not continued."""
        peer = self._peers.find_peer(serial)
        if peer is not None:
            self._peers.kill(peer, "a signal has stopped it")
        else:
            frozen = Reason.of(Kind.FROZEN, "the process was stopped by a signal")
            self.tell_stub(serial, states.KillRequested(frozen))

    def memory_exceeded(self, serial: int, reason: Reason) -> None:
        """The process of an instance has more memory than it may."""
        self.tell_stub(serial, states.KillRequested(reason))

    def messages_malformed(self, messages: int) -> None:
        """Count dropped messages: malformed ones, or ones that their sender may not send."""
        self._status.messages_malformed(messages)

    def message_received(self, serial: int, message: Any) -> None:
        """Handle a message of a process, or of a caller on the control socket."""
        peer = self._peers.find_peer(serial)
        if isinstance(message, wire.Call):
            is_caller = peer is None and self.find_stub(serial)[1] is None
            if message.verb == "join" and is_caller:
                self._peers.admit_guest(serial, message.id)
            else:
                self._calls.handle(serial, message)
        elif peer is None:
            self._received_from_stub(serial, message)
        else:
            self._received_from_peer(peer, message)

    def _received_from_peer(self, peer: ServerProcess, message: Any) -> None:
        match message:
            case wire.Drained() | wire.ModelCalled():
                self._hear_of_generation(message)
            case wire.RegionReleased():
                self._regions.region_released(peer.serial, message.number)
            case wire.ExecutionOverdue():
                self.tell_stub(
                    message.serial, states.KillRequested(message.reason, can_dump_stack=True)
                )
            case wire.FirstExecutionDone():
                _, instance = self.find_stub(message.serial)
                if instance is not None:
                    instance.has_executed = True
            case wire.ConnectionLost():
                self._lost_connections.on_lost(message.serial)
            case _:
                self._peers.handle_message(peer, message)

    def _hear_of_generation(self, message: wire.Drained | wire.ModelCalled) -> None:
        generation = self._generations.get(message.generation)
        if not message.generation:
            self._stopping.on_sequences_ended()
        if generation is None:
            return
        if isinstance(message, wire.ModelCalled):
            generation.callees.add(message.model)
        elif message.serial:
            instance = generation.instances.find(message.serial)
            if instance is not None:
                instance.drained()
        else:
            generation.on_drained()

    def _received_from_stub(self, serial: int, message: Any) -> None:
        """Handle a message of a stub or a helper process."""
        if event := stub_event(message):
            self.tell_stub(serial, event)
        match message:
            case wire.MemoryGrowth() | wire.Mismatch():
                _, instance = self.find_stub(serial)
                if instance is not None:
                    instance.record_finding(message)
            case wire.Synced():
                self._acknowledgements.acknowledge(serial, message.number)
            case wire.CallResult():
                self.succession.take_answer(serial, message)
                # until one of them has asked for it
                any(helper.handle_result(serial, message) for helper in self._helpers)
            case wire.Kept():
                self._record_kept(serial, message)
            case wire.PreparationProgress():
                for helper in self._helpers:
                    helper.handle_progress(serial, message)

    def _record_kept(self, template: int, report: wire.Kept) -> None:
        for generation in self._generations.values():
            if any(one.serial == template for one in generation.templates):
                generation.record_kept(report)

    def tell_stub(self, serial: int, event: states.Event) -> None:
        generation, instance = self.find_stub(serial)
        if generation is None or instance is None:
            return
        try:
            generation.handle(instance, event)
        except states.TransitionError as error:
            # A model can make its stub send anything; it goes no further than this.
            if not instance.has_sent_invalid_event:
                instance.has_sent_invalid_event = True
                self._plan.log("W", f"{error}; more of this will only be counted")
            self._status.messages_malformed(1)

    def find_stub(self, serial: int) -> tuple[Generation | None, StubPlace | None]:
        generation = self._generations.get(self._stubs.get(serial, 0))
        instance = None if generation is None else generation.instances.find(serial)
        return (None, None) if instance is None else (generation, instance)


class LostConnections:
    """Connections to the broker that have ended between living processes.

    The process is killed and replaced, for usually the fault is its own. A process that answers on
    its lifeline is alive; the death of a dying one is only awaited. If the broker loses two living
    processes at once, the fault is the broker's, which is then replaced: all processes connect to
    the next broker and repeat unanswered requests.
    """

    def __init__(
        self,
        plan: Plan,
        peers: Peers,
        introductions: Introductions,
        acknowledgements: Acknowledgements,
        events: EventRouter,
    ) -> None:
        self._plan = plan
        self._peers = peers
        self._introductions = introductions
        self._acknowledgements = acknowledgements
        self._events = events
        #: Serials of processes without a connection that may be dead or alive.
        self._open: set[int] = set()
        #: Living processes that wait until all others are known.
        self._torn: list[ServerProcess] = []

    def on_lost(self, serial: int) -> None:
        """Handle the report that the broker has lost its connection to this process."""
        self._open.add(serial)
        self._plan.tell(self._ask(serial, self._introductions.broker_serial))

    async def _ask(self, serial: int, broker: int) -> None:
        """Check a process that has not died in time; kill it if it does not answer."""
        await self._plan.pause(_DEATH_WITHIN_S)
        if self._is_there(broker):
            # a busy supervisor sees the time before the death; by the broker's answer, both
            await self._acknowledgements.sync([broker])
        (_, instance), peer = self._events.find_stub(serial), self._peers.find_peer(serial)
        if instance is not None and self._is_there(broker):
            self._kill_stub(serial, instance)
        if peer is not None and self._is_there(broker):
            has_answered = await self._plan.within(
                _ANSWER_WITHIN_S, self._acknowledgements.sync([serial])
            )
            if has_answered and self._is_there(broker):
                self._torn.append(peer)
            elif self._is_there(broker):
                self._peers.kill(peer, _LOST)
        self._open.discard(serial)
        if not self._open:
            self._judge()

    def _is_there(self, broker: int) -> bool:
        return broker == self._introductions.broker_serial

    def _kill_stub(self, serial: int, instance: StubPlace) -> None:
        if instance.state in _CONNECTED_STATES:
            reason = Reason.of(Kind.CONNECTION_LOST, _LOST)
            about = f"stub {instance.name} is killed: {_LOST}"
            self._plan.log("E", about, model=instance.model, version=instance.version)
            self._events.tell_stub(serial, states.KillRequested(reason))

    def _judge(self) -> None:
        """Decide, as it is known of all who lives."""
        torn, self._torn = self._torn, []
        torn = [peer for peer in torn if self._peers.find_peer(peer.serial) is peer]
        if not torn or self._peers.is_stopping:
            return
        if len(torn) > 1:
            self._replace_broker(torn)
        else:
            self._peers.kill(torn[0], _LOST)

    def _replace_broker(self, torn: Iterable[ServerProcess]) -> None:
        names = ", ".join(f"the {peer.role} process {peer.pid}" for peer in torn)
        self._plan.log("E", f"the broker is replaced: it has lost its connections to {names}")
        broker = self._introductions.broker_serial
        if self._peers.find_peer(broker):
            self._plan.enqueue(Signal(broker, int(signal.SIGKILL), group=True))
