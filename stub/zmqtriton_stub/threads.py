"""All instances of a model whose INSTANCES are threads: this process has one thread for each.

Like a template it loads model.py once, calls TritonPythonModel.preload, and starts instances on
request. Each instance is an object of its own, with connections of its own, and its thread runs a
stub's loop. A failure that a process would not survive ends all instances.

Changed code whose class has adopt() is imported next to the code that serves: later instances run
it, and adopt from the earlier instances of their names (renewal.py).
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Set

from zmqtriton_floor import prctl, wire
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_stub import instance as this_process
from zmqtriton_stub import process
from zmqtriton_stub.api.tensor import set_memory
from zmqtriton_stub.forks.hooks import Forks
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.memory import device_span
from zmqtriton_stub.memory.tensor_memory import TensorMemory
from zmqtriton_stub.model import PythonModel
from zmqtriton_stub.own_process import OwnProcess, freeze, see_own_gpu, take_priority
from zmqtriton_stub.process import AttributedOutput
from zmqtriton_stub.renewal import Renewed, renew
from zmqtriton_stub.template import load_once


class _OfThread(threading.local):
    """The memory and the output of the instance that a thread belongs to."""

    memory: Optional[TensorMemory] = None
    output: Optional[AttributedOutput] = None
    #: Prepared for the fork that this thread makes.
    prepared: Sequence[Forks] = ()


_own = _OfThread()
#: The names of the instances that threads run for, by the threads' numbers.
_owners: Dict[int, str] = {}


def run(descriptor: int, model: str) -> int:
    """Run the instances; return the exit status."""
    lifeline = Lifeline.inherited(descriptor)
    process.prepare(model)
    for name in ("stdout", "stderr"):
        setattr(sys, name, _ThreadOutput(getattr(sys, name)))
    set_memory(_make_bytes)
    _pass_on_to_threads()
    loaded = load_once(lifeline, lambda before: None, see_own_gpu)
    if loaded is None:
        return 1
    freeze()
    return InstanceHost(lifeline, Renewed(loaded), loaded.config).run()


def _make_bytes(size: int) -> Any:
    memory = _own.memory
    return None if memory is None or this_process.is_forked else memory.outputs.make(size)


class _ThreadOutput(AttributedOutput):
    """The output of this process; each instance's threads have an output of their own."""

    def write(self, text: str) -> int:
        own = _own.output
        return super().write(text) if own is None or own.closed else own.write(text)


def _pass_on_to_threads() -> None:
    """Let threads that an instance's thread starts belong to the same instance."""
    standard_start = threading.Thread.start

    def start(self: threading.Thread) -> None:
        instance, memory, output, run = this_process.here(), _own.memory, _own.output, self.run

        def run_for_instance() -> None:
            vars(self).pop("run", None)
            this_process.take_thread(instance)
            _own.memory, _own.output = memory, output
            if instance is None:
                run()
            else:
                with _owned_by(instance.name):
                    run()

        self.run = run_for_instance  # type: ignore[method-assign]
        standard_start(self)

    threading.Thread.start = start  # type: ignore[method-assign]


@contextmanager
def _owned_by(instance: str) -> Iterator[None]:
    """Record the owner of this thread for the block."""
    _owners[threading.get_ident()] = instance
    try:
        yield
    finally:
        _owners.pop(threading.get_ident(), None)  # an instance's own thread comes here twice


class InstanceHost:
    """This process, as the host of its instances."""

    def __init__(self, lifeline: Lifeline, first: Renewed, config: Any) -> None:
        self._template, self._config = first.loaded.template, config
        self._lifeline = lifeline
        #: The code that the process began with, and later code that may serve, by its template.
        self._first = first
        self._codes: Dict[int, Renewed] = {}
        #: Held while code is imported.
        self._renewing = threading.Lock()
        #: The model that each instance served with last.
        self.models: Dict[str, PythonModel] = {}
        #: Held while an instance begins or ends.
        self._lock = threading.Lock()
        self._running: Set[InstanceThread] = set()
        self._is_ending = False
        #: The steps of each instance when this process forks.
        self.forks: Set[Forks] = set()

    def run(self) -> int:
        take_priority(self._config, self._template.log)
        os.register_at_fork(
            before=self._prepare_fork,
            after_in_parent=lambda: _each(Forks.go_on),
            after_in_child=lambda: _each(Forks.become_fork),
        )
        faulthandler.unregister(prctl.STACKS_SIGNAL)
        signal.signal(prctl.STACKS_SIGNAL, self._name_threads)
        # taken by this thread, which is never busy
        signal.signal(prctl.READ_SIGNAL, lambda number, frame: this_process.receive())
        if not this_process.runs_in_parallel():
            faulthandler.register(prctl.STACKS_SIGNAL, chain=True)
        self._template.tell(wire.Synced(0))
        while not self._is_ending:
            self._lifeline.wait()
            for message, descriptors in self._lifeline.receive():
                if type(message) is wire.Call and message.verb == "renew":
                    # not here: this thread starts and ends instances
                    threading.Thread(target=self._renew, args=(message,), daemon=True).start()
                elif type(message) is wire.Call:
                    self._start(message, descriptors)
                elif type(message) is wire.ThreadEnded:
                    with self._lock:
                        self._running -= {t for t in self._running if t.serial == message.serial}
                elif type(message) is wire.Finalize:
                    self._is_ending = True
            if self._lifeline.ended:
                os._exit(1)  # nobody is left to report to
        for thread in list(self._running):
            thread.join()
        return 0

    def _prepare_fork(self) -> None:
        _own.prepared = list(self.forks)  # one that begins or ends meanwhile is not in the way
        for forks in _own.prepared:
            forks.prepare()

    def find_code(self, template: int) -> Renewed:
        """Return the code of a template by its serial."""
        return self._codes.get(template, self._first)

    def _renew(self, call: wire.Call) -> None:
        """Import changed code for later instances, and report it, or why that is impossible."""
        request = json.loads(call.arguments)
        origin = self.find_code(request["origin"])
        with self._renewing:
            gc.collect()  # earlier modules are in cycles, and may have large objects
            code, why = renew(wire.LoadModel(*request["load"]), origin.loaded, self._template.tell)
            if code is not None:
                self._codes = {request["origin"]: origin, call.id: code}
        answer = (0, "", str(os.getpid())) if code else (InternalError.number, why, "")
        self._template.tell(wire.CallResult(call.id, *answer))

    def _start(self, call: wire.Call, descriptors: list[int]) -> None:
        thread = InstanceThread(self, call, descriptors)
        with self._lock:
            self._running.add(thread)
            try:
                thread.start()
            except RuntimeError as error:
                self._running.discard(thread)
                for descriptor in descriptors:
                    os.close(descriptor)
                answer = wire.CallResult(call.id, InternalError.number, str(error), "")
            else:
                answer = wire.CallResult(call.id, 0, "", str(thread.native_id))
            self._template.tell(answer)

    def ended(self, thread: InstanceThread) -> None:
        """Report the end of an instance; if it was the last, the process ends instead."""
        with self._lock:
            self._running.discard(thread)
            if self._running or not self._is_ending:
                self._template.tell(wire.ThreadEnded(thread.serial))

    def _name_threads(self, number: int, frame: Any) -> None:
        """Print, after the stacks of all threads, the instance that each thread belongs to."""
        if this_process.runs_in_parallel():
            faulthandler.dump_traceback(2)  # which holds them meanwhile
        for thread in list(self._running):
            os.write(
                2, f"Thread 0x{thread.ident or 0:016x} is instance {thread.instance}\n".encode()
            )


def _each(act: Callable[[Forks], None]) -> None:
    for forks in reversed(_own.prepared):
        act(forks)


class InstanceThread(threading.Thread):
    """One instance, from its thread's start to its end."""

    def __init__(self, host: InstanceHost, call: wire.Call, descriptors: list[int]) -> None:
        request = json.loads(call.arguments)
        self.serial, self.instance = call.id, request["instance"]
        super().__init__(name=self.instance, daemon=True)
        self._host = host
        self._cores, self._code = request["cores"], host.find_code(request["template"])
        self._lifeline, self._page, self._listener, self._writing = descriptors

    def run(self) -> None:
        prctl.set_name(f"stub {self.instance}")
        if self._cores:
            os.sched_setaffinity(0, self._cores)
        surroundings = _Surroundings(self._host, self._code)
        with open(self._writing, "w", encoding=sys.stdout.encoding, errors="replace") as stream:
            _own.output = AttributedOutput(stream)
            stub = process.make_stub(self._lifeline, self._page, self._listener, surroundings)
            with _owned_by(self.instance):
                process.live(lambda: stub)
            this_process.on_fork.remove(stub.abandon)
            this_process.receivers.remove(stub.receive)
            stub.close()
            _own.output.close()
        if surroundings.forks is not None:
            self._host.forks.discard(surroundings.forks)
        self._host.ended(self)


class _Surroundings(OwnProcess):
    """The process of an instance that is shared with other instances of the model."""

    has_own_memory = False
    forks: Optional[Forks] = None

    def __init__(self, host: InstanceHost, code: Renewed) -> None:
        self._host, self._code = host, code
        self.measures = code.take_measures()

    def threads_beside(self, instance: str) -> Sequence[int]:
        return [number for number, owner in [*_owners.items()] if owner != instance]

    def adopt(
        self, instance: StubInstance, bootstrap: wire.Bootstrap, memory: TensorMemory
    ) -> None:
        this_process.take_thread(instance)
        _own.memory = memory
        self.forks = forks = Forks(instance, bootstrap, memory)
        self._host.forks.add(forks)

    def see_own_gpu(self, load: wire.LoadModel) -> wire.LoadModel:
        """Return the load with CUDA's number of the GPU, if this process sees only that one."""
        return load if device_span.only_gpu is None else load._replace(device=0)

    def model_class(self, load: wire.LoadModel, instance: StubInstance) -> Any:
        self.predecessor = self._code.choose_predecessor(self._host.models.get(load.instance))
        return self._code.loaded.model_class

    def has_loaded(self, instance: StubInstance, model: PythonModel) -> None:
        if self.predecessor is not None:
            self.predecessor.is_owner, model.is_owner = False, True
        self._host.models[instance.name] = model
        self.predecessor = None  # which ends now

    def settle(self) -> None:
        """Leave the garbage collector alone: other instances are working."""

    def lose_supervisor(self, finalize: Any) -> None:
        """End only the instance: the process has a lifeline of its own."""
        finalize()
