"""A stub's life: started, load, complete, initialize, hello, then batch after batch until Finalize.

One thread does all of it: waits for the broker and the supervisor, executes, sends the results.
There is no I/O thread and no heartbeat. Knows the order of things, and leaves the model to
model.py, the socket to connection.py and what requests are owed to responses.py.
"""

from __future__ import annotations

import json
import os
import select
import threading
import time
from contextlib import suppress
from typing import Any, Callable, NoReturn

from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.errors import InternalError, Unavailable, ZmqTritonError
from zmqtriton_floor.execution_progress import ProgressView
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_floor.logs import LogOptions
from zmqtriton_floor.settings.codec import decode
from zmqtriton_floor.settings.stub import StubSettings
from zmqtriton_stub import instance as this_process
from zmqtriton_stub.api.errors import clip, describe, reason_of
from zmqtriton_stub.broker.bls_client import BlsClient
from zmqtriton_stub.broker.connection import BrokerConnection
from zmqtriton_stub.broker.deadlock_report import DeadlockReport
from zmqtriton_stub.execution.executions import Executions
from zmqtriton_stub.execution.warmup import Warmup
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.memory.tensor_memory import TensorMemory
from zmqtriton_stub.model import NoRoomToWakeError, PythonModel
from zmqtriton_stub.own_process import OwnProcess
from zmqtriton_stub.readiness import ModelReadiness
from zmqtriton_stub.supervisor_client import SupervisorClient

_now_ns = time.monotonic_ns

_POLL_EVERY_NS = 20_000_000
_COLLECT_AFTER_S = 0.5
#: A thread that runs beside this one leaves to it what this one has made, a sender for one.
_COLLECT_AFTER_AT_MOST_S = 2.0 if this_process.runs_in_parallel() else 60.0
_OVERWRITTEN = (
    "the model has written into memory that is not its own: the page in which this process tells "
    "how far it is was overwritten"
)
#: Time that a last message to the supervisor gets to be sent.
_LAST_WORDS_S = 5.0


class _Finished(Exception):
    """Raised when the supervisor has sent Finalize."""


class _Failed(Exception):
    """Raised when the model could not be loaded and the supervisor has been told."""


def _end_loop(_: wire.Finalize) -> NoReturn:
    raise _Finished


def _change_logs(message: wire.LogSettings) -> None:
    this_process.log_options = decode(LogOptions, message.settings)


class Stub:
    """The process of one instance, from its Bootstrap to its end."""

    def __init__(
        self, lifeline: Lifeline, progress: ProgressView, listener: int, process: OwnProcess
    ) -> None:
        """Set up; the listener is for the subscribers of a decoupled model."""
        self._lifeline = lifeline
        self._process = process
        #: The thread of the loop, which executes.
        self._thread: threading.Thread
        self._progress = progress
        #: Passed on to the connection to the broker; -1 after that.
        self._listener = listener
        self._supervisor = SupervisorClient(
            lifeline, lambda: process.lose_supervisor(self._finalize)
        )
        self._memory = TensorMemory(self._supervisor, maps_regions=process.maps_regions)
        self._inbox = self._supervisor.inbox
        # Not a poll object: an event loop can wait on this one's descriptor.
        self._poller = select.epoll()
        #: Descriptors that threads other than the loop's attend to while they wait (duties.py).
        self._beside = select.epoll()
        self._bootstrap: wire.Bootstrap
        self._settings: StubSettings
        self._instance: StubInstance
        self._model: PythonModel
        self._link: BrokerConnection
        self._asker: BlsClient
        #: The epoch of the connected broker; 0 before the first.
        self._epoch = 0
        self._executions: Executions
        self._warmup: Warmup
        #: None if the model has no is_ready.
        self._readiness: ModelReadiness | None = None
        self._next_poll_ns = 0
        #: When idle with responses owed, garbage is collected after this time.
        self._collect_after_s = _COLLECT_AFTER_S
        #: True while the loop reads replies that the model will not take.
        self._has_orphans = False
        self._is_initialized = False
        self._is_backed_up = False
        #: Functions by type of the supervisor's message, for those that no thread waits for.
        self._of_supervisor: dict[type, Callable[[Any], object]] = {
            wire.Finalize: _end_loop,
            wire.Sync: lambda sync: self._instance.tell(wire.Synced(sync.number)),
            wire.StreamListener: self._listen,
            wire.LogSettings: _change_logs,
            wire.NewEpoch: self._change_broker,
            wire.Call: lambda call: self._instance.tell(self._rest(call)),
        }
        #: Functions that close a fork's copies of the connections.
        self._on_fork = [lifeline.abandon]
        #: Functions that close the connections, and the rest, in this process; called from last to
        #: first.
        self._on_end = [
            self._poller.close,
            self._beside.close,
            lifeline.close,
            progress.close,
        ]

    def run(self) -> int:
        """Run the stub and return the exit status."""
        self._thread = threading.current_thread()
        try:
            self._bootstrap = self._await(wire.Bootstrap)
            self._settings = decode(StubSettings, self._bootstrap.settings)
            this_process.log_options = self._settings.log
            self._memory.begin(self._bootstrap.serial, self._settings.memory)
            self._load(self._await(wire.LoadModel))
            self._connect()
            self._warm_up()
            self._tell_loaded()
            self._serve()
        except _Failed:
            return 1
        except _Finished:
            self._finish()
            return 0

    def _finalize(self) -> None:
        """Let the loop end as if the supervisor had asked for it; from any thread."""
        self._inbox.append(wire.Finalize())

    def abandon(self) -> None:
        """After a fork, close the child's copies of the connections."""
        for close in self._on_fork:
            close()

    def receive(self) -> None:
        """Read the supervisor's messages; from any thread."""
        self._supervisor.receive()

    def close(self) -> None:
        """Let go of what the end of a process would; what the model has kept stays readable."""
        self._memory.close()
        for close in reversed(self._on_end):
            close()
        if self._listener >= 0:
            os.close(self._listener)

    # ------------------------------------------------------------ supervisor

    def _await(self, kind: type[Any]) -> Any:
        """Return the next message of this kind on the lifeline."""
        while True:
            while self._inbox:
                message = self._inbox.popleft()
                if type(message) is kind:
                    return message
                self._handle_message(message)
            self._supervisor.await_message()

    def _handle_message(self, message: Any) -> None:
        take = self._of_supervisor.get(type(message))
        if take is not None:
            take(message)

    def _change_broker(self, message: wire.NewEpoch) -> None:
        """Connect to the broker that has followed the last one."""
        self._bootstrap = self._bootstrap._replace(epoch=message.epoch)
        if self._epoch:
            # in this order: what is held here is reported before more can come
            self._asker.leave()
            self._connect_broker()
            self._asker.follow(self._bootstrap)

    def _await_room(self) -> None:
        try:
            self._supervisor.call("room", json.dumps({"model": self._instance.model}))
        except Unavailable as error:
            raise NoRoomToWakeError(error.text) from None

    def _rest(self, call: wire.Call) -> wire.CallResult:
        """Have the model sleep, unless it has requests, or wake up."""
        try:
            if self._link.pending:
                return wire.CallResult(call.id, Unavailable.number, "it has requests", "")
            self._model.rest(call.verb == "sleep")
        except Exception as error:  # noqa: BLE001 - the model's code may raise anything
            number = (Unavailable if isinstance(error, NoRoomToWakeError) else InternalError).number
            return wire.CallResult(call.id, number, clip(describe(error)), "")
        self._process.collect()
        return wire.CallResult(call.id, 0, "", "")

    def _listen(self, _: wire.StreamListener) -> None:
        """Take subscribers of a decoupled model at another listener from now on."""
        listener = self._supervisor.take_descriptor(wire.StreamListener)
        if listener < 0:
            return  # a later one has come, too
        if self._listener >= 0:
            os.close(self._listener)
            self._listener = listener
        else:
            self._link.listen(listener)

    # ------------------------------------------------------ beginning and end

    def _load(self, load: wire.LoadModel) -> None:
        """Import, complete and initialize the model, or report why not."""
        self._instance = StubInstance(load, self._lifeline.send)
        self._process.adopt(self._instance, self._bootstrap, self._memory)
        self._supervisor.instance = self._instance
        try:
            load = self._process.see_own_gpu(load)
            self._model = PythonModel(load, self._process.model_class(load, self._instance))
            config = load.config
            if load.auto_complete != wire.CONFIG_IS_FINAL:
                config = self._model.complete() if load.auto_complete else config
                self._instance.tell(wire.ConfigCompleted(config))
                config = self._await(wire.Initialize).config
            self._instance.configure(config)
            self._instance.begin(self._bootstrap, self._settings)
            self._instance.call = self._supervisor.call
            self._model.initialize(config, self._instance)
            self._warmup = Warmup(json.loads(config), load.directory)
        except _Finished:
            raise
        except BaseException as error:  # noqa: BLE001 - the model's code may raise anything
            self._fail(wire.LoadFailed(reason_of(error)), error)
        self._is_initialized = True
        self._process.settle()

    def _warm_up(self) -> None:
        """Execute the warm-up samples of the configuration."""
        try:
            self._warmup.run(self._model, self._link, self._progress, self._wait)
        except ZmqTritonError as error:
            reason = error.reason._replace(text=clip(error.text))
            self._fail(wire.LoadFailed(reason, error.number), error)
        except MemoryError as error:
            self._fail(wire.LoadFailed(reason_of(error)), error)

    def _fail(self, failure: wire.LoadFailed, error: BaseException) -> NoReturn:
        """Report why the model is not served, and end the loop."""
        self._instance.tell(failure)
        poller = select.poll()
        poller.register(self._lifeline, select.POLLOUT)
        deadline = time.monotonic() + _LAST_WORDS_S
        while self._lifeline.is_backed_up and time.monotonic() < deadline:
            poller.poll(_LAST_WORDS_S * 1000)
            self._lifeline.flush()
        raise _Failed from error

    def _connect(self) -> None:
        self._link = link = BrokerConnection(
            self._instance,
            watch=lambda descriptor: self._poller.register(descriptor, select.POLLIN),
            unwatch=self._poller.unregister,
        )
        self._instance.find_request = link.pending.get
        self._instance.request_ids = lambda: [one.request_id for one in [*link.pending.values()]]
        memory = self._instance.memory = self._memory
        self._asker = BlsClient(
            self._bootstrap,
            memory,
            # the duties of the main thread while the model waits for another one
            lambda: {self._poller.fileno(): self._attend},
            link.wake,
            lambda loop: loop is self._model.event_loop,
            beside={self._beside.fileno(): self._attend},
        )
        self._asker.read_leases = link.turn
        self._on_fork += [link.abandon, self._asker.abandon]
        self._on_end += [link.close, self._asker.close]
        self._executions = Executions(
            self._instance,
            self._model,
            link,
            self._progress,
            watches_memory=self._process.has_own_memory,
        )
        self._model.attend(self._poller.fileno(), self._attend)
        self._model.await_room = self._await_room
        self._instance.asker = self._asker
        self._asker.standstill = DeadlockReport(
            self._asker.waits, self._executions, self._model
        ).look
        supervisor = self._supervisor
        supervisor.send, supervisor.wake = self._instance.tell, link.wake
        memory.release = lambda release: link.send([wire.encode(release)])
        supervisor.attend = self._poll_while_executing
        self._instance.measures.is_busy = self._is_executing
        self._poller.register(self._lifeline, select.POLLIN)
        self._poller.register(self._link.wake_descriptor, select.POLLIN)
        self._beside.register(self._lifeline, select.EPOLLIN)
        self._beside.register(self._link.wake_descriptor, select.EPOLLIN)
        if self._instance.is_decoupled:
            bootstrap = self._bootstrap
            address = endpoints.stream_address(bootstrap.directory, bootstrap.serial)
            is_timed = self._settings.metrics.has_histograms
            self._link.publish(address, self._listener, is_timed=is_timed)
        else:
            os.close(self._listener)
        self._listener = -1
        self._link.poll_while_executing = self._poll_while_executing
        self._connect_broker()
        while self._link.epoch != self._bootstrap.epoch:
            self._wait()

    def _tell_loaded(self) -> None:
        is_ready = self._model.is_ready
        self._instance.tell(wire.ModelLoaded(int(is_ready is not None)))
        if is_ready is not None:
            # not later: from the first request on the lifeline may be left unread for long
            self._await(wire.ReadinessLifeline)
            line = Lifeline.inherited(self._supervisor.take_descriptor(wire.ReadinessLifeline))
            self._readiness = ModelReadiness(self._instance, is_ready, line)

    def _connect_broker(self) -> None:
        bootstrap, link = self._bootstrap, self._link
        link.connect(
            endpoints.stubs_address(bootstrap.directory, bootstrap.epoch),
            wire.Hello(
                bootstrap.serial,
                bootstrap.token,
                bootstrap.epoch,
                is_executing=self._executions.running,
                concurrency=self._model.slots,
            ),
        )
        self._epoch = bootstrap.epoch

    def _finish(self) -> None:
        if not self._is_initialized:
            return
        self._instance.asker = self._instance.call = None
        self._asker.close()
        if self._readiness is not None:
            self._readiness.close()
        try:
            self._model.finalize()
        except Exception as error:  # noqa: BLE001 - the model's code; Triton goes on as well
            self._instance.log("I", describe(error))
        if not self._process.has_own_memory:
            # other instances of this process may have what this one has kept in a global
            self._memory.close()
        self._instance.measures.flush()  # the loop, which would, has ended
        self._link.close()
        self._instance.tracing.close()
        self._model.forget()

    # ------------------------------------------------------------- executing

    def _serve(self) -> NoReturn:
        batches = self._link.batches
        while True:
            while batches and self._epoch == self._bootstrap.epoch:
                batch = batches.popleft()
                if not self._executions.begin(*batch):
                    batches.appendleft(batch)  # it is forgotten with its broker
                    self._await_next_broker()
                self._collect_after_s = _COLLECT_AFTER_S
            self._wait()

    def _await_next_broker(self) -> None:
        """Wait for the supervisor's word of the next broker, which has fenced us off.

        A fence of a living broker is none: the model has written into the page.
        """
        if not self._progress.has_ended and self._link.is_broker_alive():
            self._progress.restore()
            self._process.give_up(_OVERWRITTEN)
        self._lifeline.wait(_COLLECT_AFTER_S)
        self._supervisor.receive()
        while self._inbox:
            self._handle_message(self._inbox.popleft())

    def _wait(self) -> None:
        """Wait until there is a batch or something else to look at."""
        link = self._link
        if self._epoch != self._bootstrap.epoch or (
            link.must_reconnect and not link.reconnect_in_s
        ):
            self._connect_broker()
            return  # it may have answered already, of which no descriptor would tell
        if self._lifeline.is_backed_up != self._is_backed_up:
            self._watch_lifeline()
        if (self._asker.orphans > 0) != self._has_orphans:
            self._has_orphans = not self._has_orphans
            if self._has_orphans:
                self._poller.register(self._asker.descriptor, select.POLLIN)
            else:
                self._poller.unregister(self._asker.descriptor)
        link.is_waiting = True
        # a thread that takes a batch from here on wakes us
        ready = [] if link.batches or self._inbox else self._ready()
        link.is_waiting = False
        for descriptor, _ in ready:
            if descriptor != link.descriptor:
                self._take_from(descriptor)
        if self._instance.measures.changes:
            self._instance.measures.flush()
        link.turn()
        link.settle()
        while self._inbox:
            self._handle_message(self._inbox.popleft())

    def _watch_lifeline(self) -> None:
        """Be woken when the supervisor has read, or no longer."""
        self._is_backed_up = not self._is_backed_up
        writable = select.POLLOUT if self._is_backed_up else 0
        self._poller.modify(self._lifeline, select.POLLIN | writable)

    def _take_from(self, descriptor: int) -> None:
        """Take messages at a descriptor that is not the broker's."""
        if descriptor == self._link.wake_descriptor:
            self._link.awake()
        elif descriptor == self._asker.descriptor:
            self._asker.turn()
        else:
            self._lifeline.flush()
            self._supervisor.receive()
            if self._lifeline.ended:
                with suppress(FileNotFoundError):  # that was known already
                    self._beside.unregister(self._lifeline)  # it would tell for ever

    def _attend(self) -> None:
        """Do everything but executing while code of the model runs; in any thread that waits."""
        duties = self._model.duties
        if duties.take():
            try:
                self._do_duties()
            finally:
                duties.give_back()

    def _do_duties(self) -> None:
        link = self._link
        for descriptor, _ in self._poller.poll(0):
            if descriptor != link.descriptor:
                self._take_from(descriptor)
        if self._instance.measures.changes:
            self._instance.measures.flush()
        link.turn()
        # a broker that sent a batch may have sent more, which nothing else tells
        count = -1
        while count != len(link.batches):
            count = len(link.batches)
            link.turn()
        link.settle()
        if self._lifeline.is_backed_up != self._is_backed_up:
            self._watch_lifeline()
        for _ in range(len(self._inbox)):
            message = self._inbox.popleft()
            if type(message) in (wire.Finalize, wire.Call):
                self._inbox.append(message)  # it has time until the model is back
            else:
                self._handle_message(message)

    def _poll_while_executing(self) -> None:
        """Look at the broker's state: a model sends or calls from within a long execute().

        The broker may be another one by now. A thread beside that of the loop looks, too: that one
        may wait for it.
        """
        now_ns = _now_ns()
        if now_ns < self._next_poll_ns or self._link.is_turning or self._asker.is_turning:
            return  # a destructor may have come here amid such a turn, for whose end it would wait
        is_loop = threading.current_thread() is self._thread
        if not is_loop or self._executions.running:
            self._next_poll_ns = now_ns + _POLL_EVERY_NS
            self._attend()

    def _is_executing(self) -> bool:
        """True in the thread that executes."""
        return threading.current_thread() is self._thread and self._executions.running > 0

    def _ready(self) -> list[tuple[int, int]]:
        """Return the descriptors that have something; the model's coroutines run meanwhile."""
        idle_s = None
        if self._memory.arena.segments:
            idle_s = self._memory.trim()
        is_owing = self._link.pending or self._warmup.pending
        if is_owing and (idle_s is None or idle_s > self._collect_after_s):
            idle_s = self._collect_after_s
        if self._link.must_reconnect:
            idle_s = min(self._link.reconnect_in_s, _COLLECT_AFTER_S)
        model = self._model
        if model.event_loop is not None and model.has_background():
            model.run_background(idle_s)
            ready = self._poller.poll(0)
        else:
            ready = self._poller.poll(-1 if idle_s is None else idle_s)
        if not ready and is_owing:
            self._process.collect()
            self._collect_after_s = min(2 * self._collect_after_s, _COLLECT_AFTER_AT_MOST_S)
        return ready
