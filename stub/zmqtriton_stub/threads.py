"""All instances of a model whose INSTANCES are threads: this process has one thread for each.

Like a template it loads model.py once, calls TritonPythonModel.preload, and starts instances on
request. Each instance is an object of its own, with connections of its own, and its thread runs a
stub's loop. A failure that a process would not survive ends all instances.
"""

from __future__ import annotations

import faulthandler
import itertools
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
from zmqtriton_stub.fork_server import freeze
from zmqtriton_stub.forks.hooks import Forks
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.memory.tensor_memory import TensorMemory
from zmqtriton_stub.own_process import OwnProcess, take_priority
from zmqtriton_stub.process import AttributedOutput
from zmqtriton_stub.template import Loaded, load_once


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
    loaded = load_once(lifeline, lambda before: None)
    if loaded is None:
        return 1
    freeze()
    return InstanceHost(lifeline, loaded).run()


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

    def __init__(self, lifeline: Lifeline, loaded: Loaded) -> None:
        self.template, self.model_class, self._config = loaded[:3]
        self._lifeline = lifeline
        #: Held while an instance begins or ends.
        self._lock = threading.Lock()
        self._running: Set[InstanceThread] = set()
        self._is_ending = False
        #: The steps of each instance when this process forks.
        self.forks: Set[Forks] = set()
        #: The first instance reports metrics that model.py and preload() have made.
        self.begun = itertools.count()

    def run(self) -> int:
        take_priority(self._config, self.template.log)
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
        self.template.tell(wire.Synced(0))
        while not self._is_ending:
            self._lifeline.wait()
            for message, descriptors in self._lifeline.receive():
                if type(message) is wire.Call:
                    self._start(message, descriptors)
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
            self.template.tell(answer)

    def ended(self, thread: InstanceThread) -> None:
        """Report the end of an instance; if it was the last, the process ends instead."""
        with self._lock:
            self._running.discard(thread)
            if self._running or not self._is_ending:
                self.template.tell(wire.ThreadEnded(thread.serial))

    def _name_threads(self, number: int, frame: Any) -> None:
        """Print, after the stacks of all threads, the instance that each thread belongs to."""
        if this_process.runs_in_parallel():
            faulthandler.dump_traceback(2)  # which holds them meanwhile
        for thread in list(self._running):
            text = f"Thread 0x{thread.ident or 0:016x} is instance {thread.instance}\n"
            os.write(2, text.encode())


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
        self._cores = request["cores"]
        self._lifeline, self._page, self._listener, self._writing = descriptors

    def run(self) -> None:
        prctl.set_name(f"stub {self.instance}")
        if self._cores:
            os.sched_setaffinity(0, self._cores)
        surroundings = _Surroundings(self._host)
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

    def __init__(self, host: InstanceHost) -> None:
        self._host = host
        self.measures = None if next(host.begun) else host.template.measures

    def threads_beside(self, instance: str) -> Sequence[int]:
        return [number for number, owner in [*_owners.items()] if owner != instance]

    def adopt(
        self, instance: StubInstance, bootstrap: wire.Bootstrap, memory: TensorMemory
    ) -> None:
        this_process.take_thread(instance)
        _own.memory = memory
        self.forks = forks = Forks(instance, bootstrap, memory)
        self._host.forks.add(forks)

    def model_class(self, load: wire.LoadModel, instance: StubInstance) -> Any:
        return self._host.model_class

    def settle(self) -> None:
        """Leave the garbage collector alone: other instances are working."""

    def lose_supervisor(self, finalize: Any) -> None:
        """End only the instance: the process has a lifeline of its own."""
        finalize()
