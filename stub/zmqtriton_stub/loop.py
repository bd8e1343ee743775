"""A stub's life: started, load, complete, initialize, hello, then batch after batch until Finalize.

One thread does all of it: waits for the broker and the supervisor, executes, sends the results.
There is no I/O thread and no heartbeat. Knows the order of steps, and leaves the model to model.py,
decisions to core.py, and waiting to watch.py.
"""

from __future__ import annotations

import json
import os
import time
from functools import partial
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
from zmqtriton_stub.broker.line import BrokerLine
from zmqtriton_stub.core import StubCore
from zmqtriton_stub.execution.streams import Publisher
from zmqtriton_stub.execution.warmup import Warmup
from zmqtriton_stub.memory.tensor_memory import TensorMemory
from zmqtriton_stub.model import NoRoomToWakeError, PythonModel
from zmqtriton_stub.own_process import OwnProcess
from zmqtriton_stub.readiness import ModelReadiness
from zmqtriton_stub.supervisor_client import SupervisorClient
from zmqtriton_stub.watch import MAX_READY, Watch

#: Time that the supervisor gets to tell of the next broker, before it is waited for anew.
_NEXT_BROKER_S = 0.5
#: Time that a last message to the supervisor gets to be sent.
_LAST_WORDS_S = 5.0


class _Finished(Exception):
    """Raised when the supervisor has sent Finalize."""


class _Failed(Exception):
    """Raised when the model could not be loaded, after a report to the supervisor."""


def _end_loop(_: wire.Finalize) -> NoReturn:
    raise _Finished


def _change_logs(message: wire.LogSettings) -> None:
    this_process.log_options = decode(LogOptions, message.settings)


class Stub:
    """The process of one instance, from its Bootstrap to its end."""

    def __init__(
        self, lifeline: Lifeline, progress: ProgressView, listener: int, process: OwnProcess
    ) -> None:
        """Set up, in the loop's thread; `listener` is for subscribers of a decoupled model."""
        self._lifeline = lifeline
        self._process = process
        self._progress = progress
        #: Passed on to the publisher; -1 after that.
        self._listener = listener
        self._watch = watch = Watch(self, lifeline)
        self._supervisor = SupervisorClient(
            lifeline,
            watch,
            lambda: process.lose_supervisor(self._finalize),
            lambda: self._instance,
        )
        self._inbox = self._supervisor.inbox
        #: Reads the supervisor's messages; from any thread.
        self.receive = self._supervisor.receive
        #: The connections to the broker: for batches, and for calls of other models.
        self._lines = BrokerLine(watch.loop), BrokerLine(watch.replies)
        self._bootstrap: wire.Bootstrap
        #: None before the load, and before it serves.
        self._instance: this_process.StubInstance | None = None
        self._core: StubCore | None = None
        #: None if the model has no is_ready.
        self._readiness: ModelReadiness | None = None
        #: Functions by type of the supervisor's message, for those that no thread waits for.
        self._of_supervisor: dict[type, Callable[[Any], object]] = {
            wire.Finalize: _end_loop,
            wire.Sync: lambda sync: self._supervisor.send(wire.Synced(sync.number)),
            wire.StreamListener: self._listen,
            wire.LogSettings: _change_logs,
            wire.NewEpoch: self._change_broker,
            wire.Call: lambda call: self._supervisor.send(self._rest(call)),
        }
        #: Functions that close the connections, and the rest, in this process; called from last to
        #: first.
        self._on_end = [watch.close, lifeline.close, progress.close]

    def run(self) -> int:
        """Run the stub and return the exit status."""
        try:
            self._bootstrap = self._await(wire.Bootstrap)
            self._settings = decode(StubSettings, self._bootstrap.settings)
            this_process.log_options = self._settings.log
            core = self._core = self._load(self._await(wire.LoadModel))
            self._on_end += [core.link.close, core.asker.close, self._memory.mappings.close]
            core.connect()
            while core.link.epoch < 0:  # until its welcome
                self._wait(core)
            self._warm_up(core)
            self._tell_loaded(core)
            self._serve(core)
        except _Failed:
            return 1
        except _Finished:
            if self._core is not None:
                self._finish(self._core)
            return 0

    def _finalize(self) -> None:
        """End the loop as if the supervisor had asked for it; any thread may call this."""
        self._inbox.append(wire.Finalize())

    def abandon(self) -> None:
        """Close the copies of the connections in a fork."""
        self._lifeline.abandon()
        if self._core is not None:
            self._core.link.line.abandon()
            self._core.asker.abandon()

    def close(self) -> None:
        """Release everything that a process's end would; memory that the model keeps stays."""
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
        """Record the next broker; the core follows to it as soon as it can."""
        self._bootstrap = self._bootstrap._replace(epoch=message.epoch)

    def _await_room(self, model: str) -> None:
        try:
            self._supervisor.call("room", json.dumps({"model": model}))
        except Unavailable as error:
            raise NoRoomToWakeError(error.text) from None

    def _rest(self, call: wire.Call) -> wire.CallResult:
        """Let the model sleep, unless it has requests, or wake up."""
        core = self._core
        assert core is not None  # a model that serves is asked for that
        try:
            if core.link.pending:
                return wire.CallResult(call.id, Unavailable.number, "it has requests", "")
            core.model.rest(call.verb == "sleep")
        except Exception as error:  # noqa: BLE001 - the model's code may raise anything
            number = (Unavailable if isinstance(error, NoRoomToWakeError) else InternalError).number
            return wire.CallResult(call.id, number, clip(describe(error)), "")
        self._process.collect()
        return wire.CallResult(call.id, 0, "", "")

    def _listen(self, _: wire.StreamListener) -> None:
        """Accept subscribers of a decoupled model at another listener from now on."""
        listener = self._supervisor.take_descriptor(wire.StreamListener)
        if listener < 0:
            return  # a later one has come, too
        if self._core is None:
            os.close(self._listener)
            self._listener = listener
        else:
            self._core.link.listen(listener)

    # ------------------------------------------------------ beginning and end

    def _load(self, load: wire.LoadModel) -> StubCore:
        """Import, complete and initialize the model, or report why that failed."""
        bootstrap, settings, supervisor, process = (
            self._bootstrap,
            self._settings,
            self._supervisor,
            self._process,
        )
        self._memory = memory = TensorMemory(
            supervisor,
            self._lines[0],
            bootstrap.serial,
            settings.memory,
            maps_regions=process.maps_regions,
        )
        instance = self._instance = this_process.StubInstance(
            load,
            supervisor.send,
            memory,
            process.measures,
            partial(process.threads_beside, load.instance),
        )
        process.adopt(instance, bootstrap, memory)
        try:
            load = process.see_own_gpu(load)
            model = PythonModel(
                load,
                process.model_class(load, instance),
                self._watch,
                partial(self._await_room, load.model),
            )
            config = load.config
            if load.auto_complete != wire.CONFIG_IS_FINAL:
                config = model.complete() if load.auto_complete else config
                supervisor.send(wire.ConfigCompleted(config))
                config = self._await(wire.Initialize).config
            instance.configure(config)
            instance.begin(bootstrap, settings)
            instance.allow(None, supervisor.call)
            model.initialize(config, instance, process.predecessor)
            warmup = Warmup(json.loads(config), load.directory)
        except _Finished:
            raise
        except BaseException as error:  # noqa: BLE001 - the model's code may raise anything
            self._fail(wire.LoadFailed(reason_of(error)), error)
        process.settle()
        core = StubCore(
            instance,
            model,
            self._lines,
            self._watch,
            self._bootstrap,  # of the broker that there is by now
            progress=self._progress,
            warmup=warmup,
            publisher=self._publisher(instance),
            process=process,
        )
        instance.allow(core.asker, supervisor.call)
        return core

    def _publisher(self, instance: this_process.StubInstance) -> Publisher | None:
        """Return the publisher of responses to frontends; None unless the model is decoupled."""
        listener, self._listener = self._listener, -1
        if not instance.is_decoupled:
            os.close(listener)
            return None
        bootstrap = self._bootstrap
        address = endpoints.stream_address(bootstrap.directory, bootstrap.serial)
        # the broker is to know when the first one of each stream leaves
        return Publisher(address, listener, is_timed=self._settings.metrics.has_histograms)

    def _warm_up(self, core: StubCore) -> None:
        """Execute the warm-up samples of the configuration."""
        try:
            core.warmup.run(core.model, core.instance, self._progress, lambda: self._wait(core))
        except ZmqTritonError as error:
            reason = error.reason._replace(text=clip(error.text))
            self._fail(wire.LoadFailed(reason, error.number), error)
        except MemoryError as error:
            self._fail(wire.LoadFailed(reason_of(error)), error)

    def _fail(self, failure: wire.LoadFailed, error: BaseException) -> NoReturn:
        """Report why the model is not served, and end the loop."""
        self._supervisor.deliver(failure, _LAST_WORDS_S)
        raise _Failed from error

    def _tell_loaded(self, core: StubCore) -> None:
        is_ready = core.model.is_ready
        self._process.has_loaded(core.instance, core.model)
        self._supervisor.send(
            wire.ModelLoaded(int(is_ready is not None), self._process.imported_modules())
        )
        if is_ready is not None:
            # not later: from the first request on the lifeline may be left unread for long
            self._await(wire.ReadinessLifeline)
            line = Lifeline.inherited(self._supervisor.take_descriptor(wire.ReadinessLifeline))
            self._readiness = ModelReadiness(core.instance, is_ready, line)

    def _finish(self, core: StubCore) -> None:
        instance = core.instance
        instance.allow()
        core.asker.close()
        if self._readiness is not None:
            self._readiness.close()
        try:
            core.model.finalize()
        except Exception as error:  # noqa: BLE001 - the model's code; Triton goes on as well
            instance.log("I", describe(error))
        if not self._process.has_own_memory:
            # other instances of this process may have what this one has kept in a global
            self._memory.mappings.close()
        instance.measures.flush()  # the loop, which would, has ended
        core.link.close()
        instance.tracing.sender.close()
        core.model.forget()

    # ------------------------------------------------------------- executing

    def _serve(self, core: StubCore) -> NoReturn:
        batches, begin = core.link.batches, core.executions.begin
        while True:
            while batches:
                batch = batches.popleft()
                if not begin(batch):
                    batches.appendleft(batch)  # it is forgotten with its broker
                    self._await_next_broker(core)
            self._wait(core)

    def _await_next_broker(self, core: StubCore) -> None:
        """Wait for the supervisor's message about the next broker, which has fenced this stub off.

        While the broker lives there can be no fence: then the model has written into the page.
        """
        if not self._progress.has_ended and core.link.line.is_peer_alive():
            self._progress.restore()
            self._process.give_up(
                "the model has written into memory that is not its own: the page in which this "
                "process tells how far it is was overwritten"
            )
        self._lifeline.wait(_NEXT_BROKER_S)
        self._supervisor.receive()
        self._take_messages(core)

    def _wait(self, core: StubCore) -> None:
        """Wait until there is a batch or other work."""
        link, watch, model = core.link, self._watch, core.model
        idle_s = core.due(time.monotonic)
        if self._lifeline.is_backed_up or core.asker.orphans or watch.is_wide:
            watch.follow(core.asker.orphans)
        link.is_waiting = True
        # a thread that takes a batch from here on wakes us
        ready, is_idle = [], not (link.batches or self._inbox)
        if is_idle:
            if model.event_loop is not None and model.has_background():
                model.run_background(idle_s)
                idle_s = 0.0
            ready = watch.loop.poll(idle_s, MAX_READY)
        link.is_waiting = False
        if is_idle and not ready and core.may_collect():
            self._process.collect()
        for descriptor, _ in ready:
            if descriptor != link.line.descriptor:
                self._take_from(core, descriptor)
        core.advance()
        if self._inbox:
            self._take_messages(core)

    # ---------------------------------------------------------------- rounds

    def may_poll(self) -> bool:
        """Return whether a round may be run amid the code of this thread."""
        return self._core is not None and self._core.may_poll()

    def run_round(self) -> None:
        """Do all the work of the loop except executing, while code of the model runs."""
        core = self._core
        if core is None:
            return  # a thread that the model has begun in initialize() comes early
        for descriptor, _ in self._watch.loop.poll(0, MAX_READY):
            if descriptor != core.link.line.descriptor:
                self._take_from(core, descriptor)
        core.advance(is_amid=True)
        self._watch.follow(core.asker.orphans)
        self._take_messages(core, is_amid=True)

    def _take_from(self, core: StubCore, descriptor: int) -> None:
        """Take messages at a descriptor other than the one for batches."""
        watch, lifeline = self._watch, self._lifeline
        if descriptor == watch.bell_descriptor:
            watch.awake()
        elif descriptor == watch.replies.fileno():
            core.asker.turn()
        else:
            lifeline.flush()
            self._supervisor.receive()
            if lifeline.ended:
                watch.forget_lifeline()

    def _take_messages(self, core: StubCore, *, is_amid: bool = False) -> None:
        """Take the supervisor's messages; amid the model's code, only urgent ones."""
        for message in core.take(self._inbox, is_amid=is_amid):
            self._handle_message(message)
