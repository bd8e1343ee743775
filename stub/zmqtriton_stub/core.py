"""The decisions of a stub: its next step after messages of supervisor and broker, deaths, and time.

Has neither sockets nor epolls: loop.py waits, and performs other steps. The parts of a serving
instance are made here; each knows only earlier ones.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Callable, Iterator

from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.execution_progress import ProgressView
from zmqtriton_stub import instance as this_process
from zmqtriton_stub.broker.bls_client import BlsClient
from zmqtriton_stub.broker.connection import BrokerConnection
from zmqtriton_stub.broker.deadlock_report import DeadlockReport
from zmqtriton_stub.broker.line import BrokerLine
from zmqtriton_stub.execution.executions import Executions
from zmqtriton_stub.execution.streams import Publisher
from zmqtriton_stub.execution.warmup import Warmup
from zmqtriton_stub.model import PythonModel
from zmqtriton_stub.own_process import OwnProcess
from zmqtriton_stub.watch import Watch

_COLLECT_AFTER_S = 0.5
#: A thread that runs beside the loop leaves to it what it has made, a sender for one.
_COLLECT_AFTER_AT_MOST_S = 2.0 if this_process.runs_in_parallel() else 60.0
#: Messages of the supervisor that wait until the model's code is back.
_PATIENT = (wire.Finalize, wire.Call)


class StubCore:
    """A serving instance, between its model and successive brokers."""

    def __init__(
        self,
        instance: this_process.StubInstance,
        model: PythonModel,
        lines: tuple[BrokerLine, BrokerLine],
        watch: Watch,
        bootstrap: wire.Bootstrap,
        *,
        progress: ProgressView,
        warmup: Warmup,
        publisher: Publisher | None = None,
        process: OwnProcess | None = None,
    ) -> None:
        """Set up; the lines are for batches and for calls of other models."""
        self.instance = instance
        self.model = model
        self._watch = watch
        self.warmup = warmup
        self._bootstrap = bootstrap
        work, calls = lines
        self.link = BrokerConnection(
            instance, work, watch, pending=instance.pending, publisher=publisher
        )
        self.executions = Executions(instance, model, self.link, progress, process=process)
        self.asker = BlsClient(
            bootstrap,
            instance.memory,
            calls,
            watch,
            read_work=self.link.turn,
            report=DeadlockReport(watch, self.executions, model).look,
        )
        #: When idle with responses owed, garbage is collected after this time.
        self._collect_after_s = _COLLECT_AFTER_S

    # ---------------------------------------------------------------- brokers

    def connect(self) -> None:
        """Send a Hello to the present broker."""
        bootstrap = self._bootstrap
        self.link.connect(
            endpoints.stubs_address(bootstrap.directory, bootstrap.epoch),
            wire.Hello(
                bootstrap.serial,
                bootstrap.token,
                bootstrap.epoch,
                is_executing=self.executions.running,
                concurrency=self.model.slots,
            ),
        )

    def _follow(self, epoch: int) -> None:
        """Follow to the next broker; also amid the model's code."""
        self._bootstrap = self._bootstrap._replace(epoch=epoch)
        # in this order: what is held here is reported before more can come
        self.asker.leave()
        self.connect()
        self.asker.follow(self._bootstrap)

    # ----------------------------------------------------------------- rounds

    def advance(self, *, is_amid: bool = False) -> None:
        """Exchange all messages with the broker; outside the model's code, at most one batch."""
        link = self.link
        if self.instance.measures.changes:
            self.instance.measures.flush()
        link.turn()
        if link.batches:
            self._collect_after_s = _COLLECT_AFTER_S
        if is_amid:
            # a broker that sent a batch may have sent more, which nothing else tells
            count = -1
            while count != len(link.batches):
                count = len(link.batches)
                link.turn()
        if link.postponed:
            link.settle()

    def take(self, inbox: deque[Any], *, is_amid: bool = False) -> Iterator[Any]:
        """Take the supervisor's messages; yield the messages for the loop.

        Amid the model's code, messages that can wait until it returns stay in the inbox.
        """
        for _ in range(len(inbox)):
            message = inbox.popleft()
            if is_amid and type(message) in _PATIENT:
                inbox.append(message)
            elif type(message) is wire.NewEpoch:
                self._follow(message.epoch)
            else:
                yield message

    def may_poll(self) -> bool:
        """Return whether a round may be run now, amid the code of this thread.

        Other threads than the loop's may run one as well: the loop may wait for such a thread.
        """
        if self.link.line.lock.locked() or self.asker.line.lock.locked():
            return False  # a destructor may have come here amid a turn, for whose end it would wait
        return self.executions.running > 0 or threading.get_ident() != self._watch.thread

    # ----------------------------------------------------------------- times

    def due(self, clock: Callable[[], float]) -> float | None:
        """Connect if it is time; return how long the loop may wait then; None: for ever."""
        link, memory = self.link, self.instance.memory
        idle_s = memory.trim() if memory is not None and memory.arena.segments else None
        if link.pending or self.warmup.pending:
            idle_s = min(self._collect_after_s, self._collect_after_s if idle_s is None else idle_s)
        reconnect_at_s = link.reconnect_at_s if link.epoch < 0 else None
        if reconnect_at_s is None:
            return idle_s
        left_s = reconnect_at_s - clock()
        if left_s > 0:
            return min(left_s, _COLLECT_AFTER_S)
        self.connect()
        return 0.0  # it may have answered already, of which no descriptor would tell

    def may_collect(self) -> bool:
        """Return whether to collect garbage: it may hold senders that still owe answers."""
        if not (self.link.pending or self.warmup.pending):
            return False
        self._collect_after_s = min(2 * self._collect_after_s, _COLLECT_AFTER_AT_MOST_S)
        return True
