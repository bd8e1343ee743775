"""Introduces new processes: their token to the broker first, then their Bootstrap to them.

Processes that start before the broker has bound its sockets wait here. After a broker's death, the
next one gets the current state, and all other processes get the address of the new broker.

So the messages to brokers that are still true are kept. An attached stub stays among them, dead or
alive, until a broker reports that its batches are settled: if the next broker is informed that the
stub is dead, it knows that the stub's requests may have been executed. An ended generation also
stays: a request may still name it, and goes to its successor then. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from zmqtriton.environments.demand import Environment
from zmqtriton.reading.blueprint import Blueprint, InstanceSlot
from zmqtriton.roles import BROKERED_ROLES, CATALOGUE_ROLES
from zmqtriton.supervisor.actions import Assignment, KeepSegments, Send
from zmqtriton.supervisor.finalize_turns import FinalizeTurns
from zmqtriton.supervisor.models.resources import ResourceClaims
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.acknowledgements import Acknowledgements
from zmqtriton.supervisor.settings import ServerInfo, bytecode_directory
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor import wire
from zmqtriton_floor.logs import LogOptions
from zmqtriton_floor.settings import codec
from zmqtriton_floor.settings.tracing import TracingSettings

#: Seconds after which all that was sent to a broker has reached it.
PROPAGATION_S = 1.0
#: Maximum number of ended generations that requests may still name.
_ENDED = 64


class BrokerReplay:
    def __init__(self) -> None:
        self.expected_peers: dict[int, wire.ExpectPeer] = {}
        self._served: dict[int, wire.AddGeneration] = {}
        self._attached: dict[int, wire.AttachInstance] = {}
        #: The serials of those, by generation.
        self._attached_to: dict[int, set[int]] = {}
        #: Retired generations by number, and stubs of others by serial.
        self._retired: dict[int, wire.Retire] = {}
        self._retired_stubs: dict[int, wire.Retire] = {}
        #: The deaths of stubs that were attached.
        self._deaths: dict[int, wire.PeerDied] = {}
        #: The deaths of processes whose memory others may still read.
        self._owners_deaths: dict[int, wire.PeerDied] = {}
        #: Removed generations, oldest first.
        self._removed: dict[int, wire.RemoveGeneration] = {}
        #: The divided models.
        self._splits: dict[str, wire.TrafficSplit] = {}
        #: Retired generations that have answered everything.
        self._settled: set[int] = set()

    def record(self, message: Any) -> None:
        """Record a message that was sent to the broker, or would have been if there were one."""
        note = _NOTES.get(type(message))
        if note is not None:
            note(self, message)

    def _expect(self, message: wire.ExpectPeer) -> None:
        self.expected_peers[message.serial] = message

    def _serve(self, message: wire.AddGeneration) -> None:
        self._served[message.generation] = message
        self._removed.pop(message.generation, None)  # it was given up, and has come back

    def _attach(self, message: wire.AttachInstance) -> None:
        self._attached[message.serial] = message
        self._attached_to.setdefault(message.generation, set()).add(message.serial)

    def _detach(self, serial: int) -> None:
        attached = self._attached.pop(serial, None)
        if attached is not None:
            serials = self._attached_to[attached.generation]
            serials.discard(serial)
            if not serials:
                del self._attached_to[attached.generation]

    def _retire(self, message: wire.Retire) -> None:
        if message.serial:
            self._retired_stubs[message.serial] = message
        else:
            self._retired[message.generation] = message

    def _remove(self, message: wire.RemoveGeneration) -> None:
        number = message.generation
        if number not in self._served:
            return
        self._retired.pop(number, None)
        for serial in [s for s, one in self._retired_stubs.items() if one.generation == number]:
            del self._retired_stubs[serial]
        self._settled.discard(number)
        self._removed[number] = message
        if len(self._removed) > _ENDED:
            oldest = next(iter(self._removed))
            del self._removed[oldest], self._served[oldest]
            for serial in list(self._attached_to.get(oldest, ())):
                self._detach(serial)
                if serial in self._deaths:
                    self._forget_process(serial)

    def _divide(self, message: wire.TrafficSplit) -> None:
        if message.stable:
            self._splits[message.model] = message
        else:
            self._splits.pop(message.model, None)

    def _record_death(self, message: wire.PeerDied) -> None:
        self._owners_deaths[message.serial] = message
        if message.serial in self._attached:
            self._deaths[message.serial] = message
        else:
            self._forget_process(message.serial)

    def _forget_process(self, serial: int) -> None:
        self._detach(serial)
        for entries in (self.expected_peers, self._deaths, self._retired_stubs):
            entries.pop(serial, None)

    def has_memory(self, serial: int) -> bool:
        """True if a process was introduced, and others may still read its memory."""
        return serial in self.expected_peers or serial in self._owners_deaths

    def forget_memory(self, owner: int) -> None:
        """Forget a dead process, once all leases of its memory have ended."""
        self._owners_deaths.pop(owner, None)

    def is_alive(self, serial: int) -> bool:
        return serial in self.expected_peers and serial not in self._deaths

    def settle(self, settled: wire.Settled) -> None:
        """Forget the batches of a stub, or of a generation; a living process stays expected."""
        stubs = [settled.serial]
        if not settled.serial:
            stubs = [*self._attached_to.get(settled.generation, ())]
            if settled.generation in self._retired:
                self._settled.add(settled.generation)
        for serial in stubs:
            self._detach(serial)
            self._retired_stubs.pop(serial, None)
            if serial in self._deaths:
                self._forget_process(serial)

    def all_messages(self) -> list[Any]:
        """Return the messages for a new broker, without the retirements that must wait."""
        entries: list[dict[Any, Any]] = [
            self.expected_peers,
            self._served,
            self._attached,
            {**self._owners_deaths, **self._deaths},
            self._removed,
            self._splits,
            {number: one for number, one in self._retired.items() if number in self._settled},
        ]
        return [message for messages in entries for message in messages.values()]

    def retirements(self) -> list[wire.Retire]:
        """Return the retirements, which are sent later.

        A broker that has not yet got a generation's requests would consider it drained.
        """
        # those of settled ones have been told at once: no request is open in them
        open_ones = [one for number, one in self._retired.items() if number not in self._settled]
        return [*open_ones, *self._retired_stubs.values()]


_NOTES: dict[type[Any], Callable[[BrokerReplay, Any], None]] = {
    wire.ExpectPeer: BrokerReplay._expect,
    wire.AddGeneration: BrokerReplay._serve,
    wire.AttachInstance: BrokerReplay._attach,
    wire.Retire: BrokerReplay._retire,
    wire.RemoveGeneration: BrokerReplay._remove,
    wire.PeerDied: BrokerReplay._record_death,
    wire.TrafficSplit: BrokerReplay._divide,
}


class Introductions:
    """Knows the broker's serial number and the processes that wait for it."""

    def __init__(self, plan: Plan, server: ServerInfo, acknowledgements: Acknowledgements) -> None:
        self._plan = plan
        self._server = server
        self._acknowledgements = acknowledgements
        self._replay = BrokerReplay()
        self.resources = ResourceClaims(server)
        #: The numbers of stubs' generations, by serial.
        self.stubs: dict[int, int] = {}
        #: The numbers of generations whose last process has ended, until they are forgotten.
        self.ended_generations: list[int] = []
        self.finalize_turns = FinalizeTurns(plan, server)
        #: Returns the serial of the spare process that forks an instance; 0 without one. A feature
        #: sets it.
        self.choose_spare: Callable[[Environment, Blueprint, InstanceSlot, Assignment], int] = (
            lambda *_: 0
        )
        #: The number of brokers so far.
        self._epoch = 0
        #: The processes that wait to be introduced, or guarded, by serial.
        self._waiting: dict[int, Promise[None]] = {}
        #: The serial of the last broker, dead or alive; messages to a dead one are lost. 0 before
        #: the first.
        self.broker_serial = 0
        #: True if there is a broker, and it listens.
        self.is_broker_ready = False
        #: Every process has had the time to tell the broker what an earlier one knew.
        self._is_broker_settled = True

    def introduce_broker(self, serial: int) -> None:
        """Introduce a broker, and send it the state that earlier brokers had."""
        before, self.broker_serial = self.broker_serial, serial
        self._epoch += 1
        self._plan.enqueue(
            Send(serial, self._bootstrap(serial, self._server.new_token(), "broker")),
            *(Send(serial, message) for message in self._replay.all_messages()),
        )
        self._acknowledgements.transfer(before, serial)

    def on_broker_ready(self) -> None:
        """Introduce the waiting processes.

        Let all others connect to the broker, which has bound its sockets.
        """
        self.is_broker_ready = True
        if not self._is_broker_settled:
            self._announce(self._epoch, BROKERED_ROLES)
            self._plan.tell(self._settle_when_repeated(self._epoch))
        waiting, self._waiting = self._waiting, {}
        for ready in waiting.values():
            ready()

    async def _settle_when_repeated(self, epoch: int) -> None:
        # By then all have repeated what the old one had; a while later that has arrived.
        await self._acknowledgements.sync(self._alive(CATALOGUE_ROLES))
        await self._plan.pause(PROPAGATION_S)
        if epoch == self._epoch and self.is_broker_ready:
            self._is_broker_settled = True
            broker, retirements = self.broker_serial, self._replay.retirements()
            self._plan.enqueue(*(Send(broker, message) for message in retirements))

    def bytecode_directory(self, generation: int) -> str:
        """Return the directory of bytecode of a generation's stubs."""
        return bytecode_directory(self._server.directory, generation)

    def on_broker_ended(self) -> None:
        """Handle the end of the broker: nothing is executed until the next one is ready."""
        was_ready, self.is_broker_ready = self.is_broker_ready, False
        self._is_broker_settled = False
        if was_ready:
            self._announce(0, CATALOGUE_ROLES)

    def _announce(self, epoch: int, roles: Container[str]) -> None:
        self._plan.enqueue(*(Send(serial, wire.NewEpoch(epoch)) for serial in self._alive(roles)))

    def change_log(self, options: LogOptions) -> None:
        """Change the log settings of all processes that the broker knows, and of future ones."""
        self._server = self._server._replace(settings=self._server.settings.with_log(options))
        message = wire.LogSettings(codec.encode(options))
        self._plan.enqueue(
            *(Send(each, message) for each in (self.broker_serial, *self._alive(BROKERED_ROLES)))
        )

    def change_tracing(self, tracing: TracingSettings) -> None:
        """Change the choice of requests that frontends trace, now and later."""
        self._server = self._server._replace(settings=self._server.settings.with_tracing(tracing))
        message = wire.TraceSettings(codec.encode(tracing))
        self._plan.enqueue(*(Send(serial, message) for serial in self._alive(CATALOGUE_ROLES)))

    def _alive(self, roles: Container[str]) -> list[int]:
        """Return the living processes that the broker knows."""
        return [
            serial
            for serial, expected in self._replay.expected_peers.items()
            if expected.role in roles and self._replay.is_alive(serial)
        ]

    async def after_retirements(self) -> None:
        """Wait until no retirement is withheld from the broker any more.

        Until then the broker gives requests to instances that are to end.
        """
        while not self._is_broker_settled:
            await self._plan.until(lambda: self._is_broker_settled)
            await self._acknowledgements.sync([self.broker_serial])

    def introduce(self, serial: int, role: str, label: str, pid: int) -> Promise[None]:
        """Introduce a process, now or when the broker is ready; resolved after its Bootstrap."""

        def now() -> None:
            token = self._server.new_token()
            self.send_to_broker(wire.ExpectPeer(serial, token, role, label, pid))
            self._plan.enqueue(Send(serial, self._bootstrap(serial, token, role)))

        ready = self._broker_ready(serial)
        ready.at_end(now)
        return ready

    async def guard_process_group(self, serial: int, role: str, label: str, pid: int) -> None:
        """Let the broker kill this process group if the supervisor is killed.

        The broker has no other contact with the process. Returns when the broker knows.
        """
        await self._broker_ready(serial)
        self.send_to_broker(wire.ExpectPeer(serial, self._server.new_token(), role, label, pid))
        await self._acknowledgements.sync([self.broker_serial])

    def _broker_ready(self, serial: int) -> Promise[None]:
        if self.is_broker_ready:
            return Promise.kept(None)
        ready = self._waiting[serial] = Promise()
        return ready

    def report_death(self, serial: int, reason: str, guest: int = 0) -> None:
        """Report a death to the broker; a `guest` that is not 0 ran the dead instance."""
        self._waiting.pop(serial, None)
        if self._replay.is_alive(serial):
            self.send_to_broker(wire.PeerDied(serial, reason, guest))

    def end_memory(self, serial: int, reason: str) -> None:
        """Leave a dead process's memory to the broker's account, if the broker knows it."""
        self.report_death(serial, reason)
        if not self._replay.has_memory(serial):
            self._plan.enqueue(KeepSegments(serial))

    def settle(self, message: wire.Settled | wire.LeasedSegments) -> None:
        """Process a broker's report about batches or leases.

        Settled: later brokers need not know a stub, or a generation's stubs, any more.
        LeasedSegments: the other segments of a dead process can be freed.
        """
        if isinstance(message, wire.Settled):
            self._replay.settle(message)
        elif not self._replay.is_alive(message.owner):
            if not message.segments:
                self._replay.forget_memory(message.owner)
            self._plan.enqueue(KeepSegments(*message))

    def send_to_broker(self, message: Any) -> None:
        """Send a message to the broker; without one, the next broker gets it."""
        self._replay.record(message)
        if self._is_broker_settled or not isinstance(message, wire.Retire):
            self._plan.enqueue(Send(self.broker_serial, message))

    def _bootstrap(self, serial: int, token: bytes, role: str) -> wire.Bootstrap:
        settings = self._server.settings.document(role)
        return wire.Bootstrap(serial, token, role, self._server.directory, self._epoch, settings)
