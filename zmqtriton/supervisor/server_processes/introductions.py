"""Introduces new processes: their token to the broker first, then their Bootstrap to them.

Processes that start before the broker has bound its sockets wait here. After a broker's death, the
next one is told everything that it must know, and all others are told of it. Does no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from zmqtriton.config.quotas import QuotaUse
from zmqtriton.supervisor.actions import Send
from zmqtriton.supervisor.finalize_turns import FinalizeTurns, ProcessorUse
from zmqtriton.supervisor.models.resources import ResourceClaims
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes import bytecode
from zmqtriton.supervisor.server_processes.acknowledgements import Acknowledgements
from zmqtriton.supervisor.server_processes.replay import BrokerReplay
from zmqtriton.supervisor.server_processes.roles import BROKERED_ROLES, CATALOGUE_ROLES
from zmqtriton.supervisor.settings import Settings
from zmqtriton_floor import wire
from zmqtriton_floor.logs import LogOptions
from zmqtriton_floor.settings import codec
from zmqtriton_floor.settings.tracing import Tracing

#: What all have said to a broker for this long has reached it.
PROPAGATION_S = 1.0


class Start(NamedTuple):
    """The command and the environment of this server, for the one that takes its place."""

    program: Sequence[str] = ()
    #: The options and their values.
    words: Sequence[str] = ()
    directory: str = "/"
    environment: Mapping[str, str] = {}
    pid: int = 0
    #: Why another cannot be started like it; "" if it can.
    obstacle: str = ""
    #: What systemd calls this run of its service, and the words of systemctl to replace it.
    invocation: str = ""
    reload: str = ""


class ServerInfo(NamedTuple):
    """The facts about the server that processes are told, and readings of the machine."""

    directory: str
    settings: Settings
    new_token: Callable[[], bytes]
    #: The share of a GPU's memory that is in use; None if unknown.
    used_gpu_share: Callable[[int], float | None] = lambda gpu: None
    #: The numbers of those that models may use.
    gpus: Sequence[int] = ()
    max_instances: float = math.inf
    #: The command line, for people.
    options: Sequence[dict[str, Any]] = ()
    #: How many instances may compute in their finalizers at once.
    max_finalizing: float = math.inf
    processor_use: Callable[[int], ProcessorUse] = lambda pid: ProcessorUse()
    #: The last lines of the log: (model or "", after which line, how many).
    log_lines: Callable[[str, int, int], dict[str, Any]] = lambda model, after, limit: {
        "lines": [],
        "last": 0,
        "lost": 0,
    }
    #: How many lines of the log are lost, and for how long nobody has read it.
    log_loss: Callable[[], dict[str, Any]] = lambda: {"lost_lines": 0, "unread_s": 0.0}
    #: The last lines of each process of a model, "" for all, also of those that died.
    process_lines: Callable[[str], list[dict[str, Any]]] = lambda model: []
    #: The bytes of shared memory of each process, by serial number.
    segment_bytes: Callable[[], Mapping[int, int]] = dict
    #: The use of a model's quota, and the means by which quotas are kept, in words.
    quota_use: Callable[[str], QuotaUse] = lambda model: QuotaUse()
    quotas_kept_by: Callable[[], str] = str
    #: The processes that read the files of models, for the status.
    readers: Callable[[], Sequence[dict[str, Any]]] = tuple
    #: How long the turns of this process's own loop take.
    loop_turns: Callable[[], dict[str, Any]] = dict
    start: Start = Start()
    #: Makes the directory for copies of this store's files, if there is none, and returns it.
    #: Raises ZmqTritonError.
    claim_storage: Callable[[str], str] = str


class Introductions:
    """Knows the broker's serial number and the processes that wait for it."""

    def __init__(self, plan: Plan, server: ServerInfo, acknowledgements: Acknowledgements) -> None:
        self._plan = plan
        self._server = server
        self._acknowledgements = acknowledgements
        self._replay = BrokerReplay()
        self.resources = ResourceClaims(
            server.settings, server.used_gpu_share, server.max_instances
        )
        self.stubs = StubIndex()
        self.finalize_turns = FinalizeTurns(plan, server.max_finalizing, server.processor_use)
        #: The number of brokers so far.
        self._epoch = 0
        self._waiting: dict[int, Callable[[], None]] = {}
        #: The serial of the last broker, dead or alive; messages to a dead one are lost. 0 before
        #: the first.
        self.broker_serial = 0
        self._is_broker_ready = False
        #: Every process has had the time to tell the broker what an earlier one knew.
        self._is_broker_settled = True
        #: Those that wait until the broker has been told what retires.
        self._awaiting_retirements: list[Callable[[], None]] = []

    def introduce_broker(self, serial: int) -> None:
        """Introduce a broker; a successor is told its predecessor."""
        before, self.broker_serial = self.broker_serial, serial
        self._epoch += 1
        self._plan.enqueue(
            Send(serial, self._bootstrap(serial, self._server.new_token(), "broker"))
        )
        if before:
            self._plan.enqueue(*(Send(serial, message) for message in self._replay.all_messages()))
            self._acknowledgements.transfer(before, serial)

    def on_broker_ready(self) -> None:
        """Introduce the waiting processes.

        Let all others connect to the broker, which has bound its sockets.
        """
        self._is_broker_ready = True
        epoch = self._epoch
        if not self._is_broker_settled:
            self._announce(epoch, BROKERED_ROLES)
            # By then all have repeated what the old one had; a while later that has arrived.
            self._acknowledgements.sync(
                self._alive(CATALOGUE_ROLES), lambda: self._settle_soon(epoch)
            )
        waiting, self._waiting = self._waiting, {}
        for introduce in waiting.values():
            introduce()

    def bytecode_directory(self, generation: int) -> str:
        """Return where stubs of a generation keep bytecode."""
        return bytecode.directory(self._server.directory, generation)

    @property
    def is_broker_ready(self) -> bool:
        """True if there is a broker and it listens."""
        return self._is_broker_ready

    def on_broker_ended(self) -> None:
        """Take note that nothing can be executed until the next broker is ready."""
        was_ready, self._is_broker_ready = self._is_broker_ready, False
        self._is_broker_settled = False
        if was_ready:
            self._announce(0, CATALOGUE_ROLES)

    def _announce(self, epoch: int, roles: Container[str]) -> None:
        self._plan.enqueue(*(Send(serial, wire.NewEpoch(epoch)) for serial in self._alive(roles)))

    def change_log(self, options: LogOptions) -> None:
        """Change the log of all processes that the broker knows, and of those to come."""
        self._server = self._server._replace(settings=self._server.settings.with_log(options))
        message = wire.LogSettings(codec.encode(options))
        serials = [self.broker_serial, *self._alive(BROKERED_ROLES)]
        self._plan.enqueue(*(Send(serial, message) for serial in serials))

    def change_tracing(self, tracing: Tracing) -> None:
        """Change which requests frontends choose for traces, now and later."""
        self._server = self._server._replace(settings=self._server.settings.with_tracing(tracing))
        message = wire.TraceSettings(codec.encode(tracing))
        self._plan.enqueue(*(Send(serial, message) for serial in self._alive(CATALOGUE_ROLES)))

    def _alive(self, roles: Container[str]) -> list[int]:
        """Return the living processes that the broker knows."""
        expected = self._replay.expected_peers.items()
        return [s for s, e in expected if e.role in roles and self._replay.is_alive(s)]

    def _settle_soon(self, epoch: int) -> None:
        self._plan.call_later(PROPAGATION_S, lambda: self._mark_broker_settled(epoch))

    def _mark_broker_settled(self, epoch: int) -> None:
        if epoch == self._epoch and self._is_broker_ready:
            self._is_broker_settled = True
            self._plan.enqueue(
                *(Send(self.broker_serial, message) for message in self._replay.retirements())
            )
            waiting, self._awaiting_retirements = self._awaiting_retirements, []
            for then in waiting:
                self._acknowledgements.sync(
                    [self.broker_serial], partial(self.after_retirements, then)
                )

    def after_retirements(self, then: Callable[[], None]) -> None:
        """Call `then` when no retirement is withheld from the broker any more.

        Until then it gives requests to instances that are to end.
        """
        if self._is_broker_settled:
            then()
        else:
            self._awaiting_retirements.append(then)

    def introduce(
        self, serial: int, role: str, label: str, pid: int, then: Callable[[], None]
    ) -> None:
        """Introduce a process and call `then` after its Bootstrap.

        Later, if the broker is not ready yet.
        """

        def now() -> None:
            token = self._server.new_token()
            self.send_to_broker(wire.ExpectPeer(serial, token, role, label, pid))
            self._plan.enqueue(Send(serial, self._bootstrap(serial, token, role)))
            then()

        self._when_ready(serial, now)

    def guard_process_group(
        self, serial: int, role: str, label: str, pid: int, then: Callable[[], None] | None = None
    ) -> None:
        """Have the broker kill this process group if the supervisor is killed.

        The broker never meets the process otherwise. Calls `then` when the broker knows.
        """

        def now() -> None:
            self.send_to_broker(wire.ExpectPeer(serial, self._server.new_token(), role, label, pid))
            if then is not None:
                self._acknowledgements.sync([self.broker_serial], then)

        self._when_ready(serial, now)

    def _when_ready(self, serial: int, now: Callable[[], None]) -> None:
        if self._is_broker_ready:
            now()
        else:
            self._waiting[serial] = now

    def report_death(self, serial: int, reason: str) -> None:
        """Tell the broker of a death."""
        self._waiting.pop(serial, None)
        if self._replay.is_alive(serial):
            self.send_to_broker(wire.PeerDied(serial, reason))

    def settle(self, message: wire.Settled) -> None:
        """Take the word of a broker that a later one need not hear of a stub, or of several."""
        self._replay.settle(message)

    def send_to_broker(self, message: Any) -> None:
        """Send to the broker; without one, the next broker is told."""
        self._replay.record(message)
        if self._is_broker_settled or not isinstance(message, wire.Retire):
            self._plan.enqueue(Send(self.broker_serial, message))

    def _bootstrap(self, serial: int, token: bytes, role: str) -> wire.Bootstrap:
        settings = self._server.settings.document(role)
        return wire.Bootstrap(serial, token, role, self._server.directory, self._epoch, settings)


class StubIndex:
    """Generations tell it of each stub that they start, and of their own end."""

    def __init__(self) -> None:
        self._generations: dict[int, int] = {}
        self._ended: list[int] = []

    def add(self, serial: int, generation: int) -> None:
        self._generations[serial] = generation

    def remove(self, serial: int) -> None:
        """Forget a stub in whose place there is another one, or none any more."""
        self._generations.pop(serial, None)

    def find(self, serial: int) -> int:
        """Return the number of a stub's generation; 0 without one."""
        return self._generations.get(serial, 0)

    def end(self, generation: int) -> None:
        """Note that nothing of a generation is left."""
        self._ended.append(generation)

    def take_ended(self) -> list[int]:
        """Take the numbers of the generations that have ended since the last call."""
        ended, self._ended = self._ended, []
        return ended
