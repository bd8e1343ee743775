"""This process as a guest of a server: a frontend on a thread of its own, and instances on others.

Everything that touches the gateway runs on the frontend's loop; other threads wait for it or are
called back. Knows no models.

The instances speak the stub's protocol and are stubs to all other processes. A stub changes its own
process, but an instance here does not, because the process is the user's. Where a stub would die,
the thread ends.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import traceback
import weakref
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn, TypeVar

from zmqtriton.embedded.guest_sink import GuestSink
from zmqtriton.embedded.hosted_process import Descriptors, HostedProcess, ProcessOfClass
from zmqtriton.embedded.own_inputs import OwnInputs
from zmqtriton.embedded.requests import InferenceRequest
from zmqtriton_floor import wire
from zmqtriton_floor.arena import Allocation
from zmqtriton_floor.errors import InternalError, Unavailable
from zmqtriton_floor.execution_progress import ProgressView
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_frontends.entrance.entrance import Entrance
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.loop import Stub
from zmqtriton_stub.memory.tensor_memory import TensorMemory

_T = TypeVar("_T")

#: Interval of checks whether everything is answered, when the server stops.
_LOOK_MS = 10
_CLOSED = "the connection to the server is closed"
_LOST = "the server has ended"
_FORKED = "this process was forked from the one that is connected; connect anew"
#: Number of descriptors that come with the order to start an instance.
_DESCRIPTORS = 3

#: Instances that this process runs; a fork of it must let go of their connections.
_stubs: weakref.WeakSet[Stub] = weakref.WeakSet()


def _abandon_all() -> None:
    for stub in list(_stubs):
        stub.abandon()


os.register_at_fork(after_in_child=_abandon_all)


class _Binding(NamedTuple):
    """The model classes of one binding, one for each instance."""

    model: str
    model_classes: Sequence[Any]
    in_processes: bool
    on_report: Callable[[str], object]

    def model_class(self, instance: str) -> Any:
        """Return the class for an instance, whose name ends with its number."""
        match = re.search(r"_(\d+)$", instance)
        index = int(match[1]) if match else 0
        return self.model_classes[index] if index < len(self.model_classes) else _Missing


class _Missing:
    """The model of an instance whose class is no longer bound."""

    def __init__(self) -> None:
        raise InternalError("nothing is bound here for this instance: bind the model again")


_NOTHING = _Binding("", (), False, lambda report: None)


class Hosting:
    """The bindings of a guest: for each the classes of its models, one per instance."""

    def __init__(self) -> None:
        #: Bindings by their numbers, also while their loads go on.
        self._bindings: dict[int, _Binding] = {}
        self._last = 0
        self._running: set[HostedThread | HostedProcess] = set()

    @property
    def models(self) -> list[str]:
        """Return the names of the models that are bound, or may be: a load was interrupted."""
        return list(dict.fromkeys(binding.model for binding in self._bindings.values()))

    @property
    def is_running(self) -> bool:
        """True while an instance runs."""
        return bool(self._running)

    def bind(
        self,
        model: str,
        model_classes: Sequence[Any],
        *,
        in_processes: bool,
        on_report: Callable[[str], object],
    ) -> int:
        """Keep the classes, which are like TritonPythonModel; return the binding's number."""
        self._last += 1
        self._bindings[self._last] = _Binding(model, tuple(model_classes), in_processes, on_report)
        return self._last

    def replace(self, model: str, binding: int = 0) -> None:
        """Note which binding serves a model now (0: none), and forget its other bindings."""
        for number, bound in list(self._bindings.items()):
            if bound.model == model and number != binding:
                self.release(number)

    def release(self, binding: int) -> None:
        """Forget the bound models; running instances go on."""
        self._bindings.pop(binding, None)

    def start(self, order: wire.HostInstance, descriptors: list[int]) -> None:
        """Start an instance on a thread; takes the descriptors over."""
        if len(descriptors) != _DESCRIPTORS:
            return
        ends = Descriptors(*descriptors)
        descriptors.clear()
        binding = self._bindings.get(order.binding, _NOTHING)
        model_class = binding.model_class(order.instance)
        instance: HostedThread | HostedProcess
        on_end = self._running.discard
        if binding.in_processes:
            instance = HostedProcess(order.instance, model_class, ends, on_end, binding.on_report)
        else:
            instance = HostedThread(order.instance, model_class, ends, on_end)
        self._running.add(instance)
        instance.start()


class _SharedProcess(ProcessOfClass):
    """The user's process, which an instance shares with the user's own code."""

    maps_regions = has_own_memory = False

    def adopt(
        self, instance: StubInstance, bootstrap: wire.Bootstrap, memory: TensorMemory
    ) -> None:
        """Change nothing for pb_utils and forks: several instances share this process."""

    def settle(self) -> None:
        """Change nothing: the garbage collector is the user's."""

    def collect(self) -> None:
        """Collect nothing: the garbage collector is the user's."""

    def lose_supervisor(self, finalize: Callable[[], None]) -> None:
        finalize()

    def give_up(self, reason: str) -> NoReturn:
        raise InternalError(reason)


class HostedThread(threading.Thread):
    """One instance, from its thread's first moment to its last."""

    def __init__(
        self, name: str, model_class: Any, ends: Descriptors, on_end: Callable[[Any], object]
    ) -> None:
        """Set up; `on_end` is called at the end, on this thread."""
        super().__init__(name=f"zmqtriton {name}", daemon=True)
        self._process = _SharedProcess(model_class)
        self._lifeline = Lifeline.inherited(ends.lifeline)
        self._progress = ProgressView(ends.page)
        os.close(ends.page)
        self._listener = ends.listener
        self._on_end = on_end

    def run(self) -> None:
        stub = Stub(self._lifeline, self._progress, self._listener, self._process)
        _stubs.add(stub)
        try:
            stub.run()
        except SystemExit:
            pass  # what the user's code said ends its instance, and nothing else
        except BaseException:  # noqa: BLE001 - the last edge: say what it was, then end
            traceback.print_exc()
        finally:
            stub.close()
            self._on_end(self)


class _GuestGateway(Gateway):
    """The gateway of a guest: it leaves the log of the user's process alone."""

    def __init__(self, lifeline: Lifeline, on_end: Callable[[], None], hosting: Hosting) -> None:
        super().__init__(lifeline, on_end)
        self._hosting = hosting

    def _take_from_supervisor(self, message: Any, descriptors: list[int]) -> None:
        if type(message) is wire.HostInstance:
            self._hosting.start(message, descriptors)
        elif type(message) is not wire.LogSettings:
            super()._take_from_supervisor(message, descriptors)


class Guest:
    """Joins the server of a control connection, as a guest. Must be closed."""

    def __init__(self, lifeline: Lifeline, *, is_invited: bool = False) -> None:
        """Join. Raises the server's error if it refuses, and Unavailable if it ends.

        A process that the server has started with this lifeline is invited and need not ask.
        """
        self._lifeline = lifeline
        self._is_invited = is_invited
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        #: Reason why no more work is taken; "" while all is well.
        self._problem = ""
        self._is_ending = False
        #: Lock for giving work to the loop, and for refusing it. Reentrant, since destructors in
        #: the thread that holds it may call start(), too.
        self._lock = threading.RLock()
        #: Streams of responses that have not ended.
        self.streams: set[GuestSink] = set()
        #: Instances that this process runs for the server.
        self.hosting = Hosting()
        self.gateway: Gateway
        self.entrance: Entrance
        self._thread = threading.Thread(target=self._run, name="zmqtriton", daemon=True)
        self._thread.start()
        try:
            self.wait(self._join())
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------- called by other threads

    def soon(self, call: Callable[..., object], *arguments: Any) -> None:
        """Let the loop call a function soon. Raises Unavailable without a connection."""
        self._give(lambda: self._loop.call_soon_threadsafe(call, *arguments))

    def start(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Run a coroutine in the loop; its result, or its error, is in the future."""
        watched = self._watched(work)
        try:
            return self._give(lambda: asyncio.run_coroutine_threadsafe(watched, self._loop))
        except Unavailable:
            watched.close()
            work.close()
            raise

    def _give(self, give: Callable[[], _T]) -> _T:
        """Give the loop a task, which it carries out even if the loop is ending."""
        with self._lock:
            self._check_open()
            return give()

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            raise Unavailable(_FORKED)
        if self._problem:
            raise Unavailable(self._problem)

    def own(
        self, name: str, version: str, request: InferenceRequest
    ) -> tuple[InferenceRequest, list[Any]]:
        """Return a copy of a request that its sender cannot change, and the objects to keep for it.

        Keep them until the request is sent. Raises InvalidArgument for inputs that the model cannot
        have, and Unavailable without a connection.
        """
        self._check_open()  # a fork must not write to the arena of its parent
        gateway = self.gateway
        model = gateway.catalogue.look_up(name, version)
        inputs = OwnInputs(gateway.payload.arena, self._allocate)
        return inputs.own(request, {} if model is None else model.config), inputs.kept

    def _allocate(self, size: int) -> Allocation | None:
        """Return a block of the arena, where the loop has to make memory for it or not."""
        payload = self.gateway.payload
        room = payload.arena.allocate(size)
        if room is None and threading.current_thread() is not self._thread:
            with suppress(Unavailable):
                room = self.wait(payload.segments.allocate(size))
        return room

    def wait(self, work: Coroutine[Any, Any, _T], timeout_s: float | None = None) -> _T:
        """Run a coroutine in the loop, and wait for it; a timeout or an interrupt cancels it."""
        future = self.start(work)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def ask(self, question: Callable[[], _T]) -> _T:
        """Call `question` on the loop, where gateway and catalogue live; return its result."""

        async def answer() -> _T:
            return question()

        return self.wait(answer())

    @property
    def is_open(self) -> bool:
        """True while this process is connected."""
        return os.getpid() == self._pid and not self._problem

    def close(self) -> None:
        """Leave the server: cancel requests in flight."""
        if os.getpid() != self._pid:
            return
        self._set_problem(_CLOSED)
        with suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(self._stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _set_problem(self, problem: str) -> None:
        """Refuse all further work, because of this problem."""
        with self._lock:
            self._problem = self._problem or problem

    # ------------------------------------------------------------- on the loop

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self.gateway = gateway = _GuestGateway(self._lifeline, self._lose, self.hosting)
        gateway.on_stop.append(self._leave)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._end())
            gateway.close()
            self._loop.close()

    async def _end(self) -> None:
        await asyncio.sleep(0)  # what was given last becomes a task, or an stream
        for stream in list(self.streams):
            stream.fail(Unavailable(self._problem))
        own = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not own]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    def _lose(self) -> None:
        self._set_problem(_LOST)
        self._stop()

    def _stop(self) -> None:
        """Let the loop end, once: later calls must not cut that short."""
        if not self._is_ending:
            self._is_ending = True
            self._loop.stop()

    def _leave(self, within_ms: int) -> None:
        """Leave a stopping server, once all requests from here and to models here are answered."""
        is_busy = self.gateway.in_flight or self.streams or self.hosting.is_running
        if within_ms <= 0 or not is_busy:
            self._lose()
        else:
            step_ms = min(within_ms, _LOOK_MS)
            self._loop.call_later(step_ms / 1000, self._leave, within_ms - step_ms)

    async def _watched(self, work: Coroutine[Any, Any, _T]) -> _T:
        try:
            return await work
        except asyncio.CancelledError:
            if self._problem:
                raise Unavailable(self._problem) from None
            raise

    async def _join(self) -> None:
        gateway = self.gateway
        starting = asyncio.ensure_future(gateway.start())
        await asyncio.sleep(0)  # the lifeline is open now
        if not self._is_invited:
            joining = asyncio.ensure_future(gateway.call("join", {}))
            await asyncio.wait((starting, joining), return_when=asyncio.FIRST_COMPLETED)
            if joining.done():
                starting.cancel()
                joining.result()
            joining.cancel()
        await starting
        self.entrance = Entrance(gateway, "GUEST_RECV", "GUEST_SEND")
        # its answer comes after everything that was sent before, the models among it
        await gateway.call("ready", {"model": ""})
