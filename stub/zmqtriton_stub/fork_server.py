"""The fork server: a process that has loaded the modules of every stub, and forks stubs on request.

Started by __main__, which continues as a stub in each process that `run` has forked. Memory that
stubs share exists once. Runs no code of a model, has one thread, and leaves nothing of its own in a
stub: no descriptor, no signal handler, no module on any path. The template of a model (template.py)
forks by the same code, and has also loaded that model.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import signal
import sys
import threading
from collections import deque
from typing import Any, Iterable

from zmqtriton_floor import prctl, stub_mark, wire
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.execution_progress import ProgressView
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_floor.reasons import Kind, Reason
from zmqtriton_floor.settings import codec
from zmqtriton_floor.settings.stub import StubSettings

# loaded here once for all: what stubs load later, and their models at once
from zmqtriton_stub import process
from zmqtriton_stub.api import pb_utils  # noqa: F401
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.loop import Stub
from zmqtriton_stub.memory.tensor_memory import TensorMemory
from zmqtriton_stub.model import provide_api
from zmqtriton_stub.own_process import OwnProcess, freeze

#: No broker listens there.
_NOWHERE = os.devnull
_CONFIG = (
    '{"name": "m", "input": [{"name": "INPUT", "data_type": "TYPE_FP32", "dims": [-1]}],'
    ' "output": [{"name": "OUTPUT", "data_type": "TYPE_FP32", "dims": [-1]}]}'
)


class _NoModel:
    """Stands for a model in a rehearsal."""


class _Rehearsal(OwnProcess):
    """The process around the rehearsed instance, which leaves nothing in this process."""

    def adopt(
        self, instance: StubInstance, bootstrap: wire.Bootstrap, memory: TensorMemory
    ) -> None:
        """Do nothing: this process is no instance."""

    def model_class(self, load: wire.LoadModel, instance: StubInstance) -> Any:
        return _NoModel

    def settle(self) -> None:
        """Do nothing: this process still loads objects."""


def rehearse() -> None:
    """Run an instance from Bootstrap to Finalize. Raises OSError if descriptors are short.

    Objects that Python makes at the first use of a function, a class or a type are made here once,
    instead of by each stub in memory of its own.
    """
    ours, theirs = pair()
    supervisor, progress = Lifeline(ours), ProgressView(-1)
    for message in (
        wire.Bootstrap(1, bytes(16), "stub", _NOWHERE, 1, codec.encode(StubSettings())),
        wire.LoadModel("m_0_0", "m", 1, "CPU", 0, _NOWHERE, _NOWHERE, _CONFIG, 0),
        wire.Initialize(_CONFIG),
        wire.Finalize(),
    ):
        supervisor.send(message)
    listener = os.open(_NOWHERE, os.O_RDONLY | os.O_CLOEXEC)
    stub = Stub(Lifeline(theirs), progress, listener, _Rehearsal())
    try:
        stub.run()
    finally:
        stub.close()
        supervisor.close()


#: The C library's fork(), called with the interpreter's lock held, so that both sides have it.
_FORK = ctypes.PyDLL(None, use_errno=True).fork
#: Names of the modules that all forks share in memory.
SHARED_MODULES = frozenset(sys.modules)
#: Python 3.11 writes to the code of a function in each of its first eight calls.
_REHEARSALS = 9
#: The messages of a broker that every stub receives.
_RECEIVED = (wire.Welcome, wire.Execute)


def run(descriptor: int) -> list[str] | None:
    """Fork on request: return the arguments in a new stub; None in the fork server at its end."""
    lifeline = Lifeline.inherited(descriptor)
    problem = why_unfit()
    if problem:
        lifeline.send(wire.LoadFailed(Reason.of(Kind.OTHER, problem)))
        return None
    fork_server = ForkServer(lifeline)
    fork_server.prepare()
    return fork_server.run()


def why_unfit() -> str:
    """Return why a fork of this process would differ from a new process; "" if it would not."""
    library = os.path.dirname(os.__file__)
    for name in ("sitecustomize", "usercustomize"):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and os.path.dirname(file) != library:
            return f"{file} has to run in each process"
    if threading.active_count() > 1:
        return "something has started a thread while the interpreter started"
    return ""


def _make_ahead() -> None:
    """Make the objects that each stub would make before it could load its model."""
    for kind in _RECEIVED:
        wire.SCHEMAS[kind.__name__].read  # noqa: B018 - compiled when it is first used
    with contextlib.suppress(OSError):  # too few descriptors; a stub has fewer still
        for _ in range(_REHEARSALS):
            rehearse()
    hashlib.sha256()
    provide_api()
    process.attribute()
    process.watch_for_crashes()


class ForkServer:
    def __init__(self, lifeline: Lifeline) -> None:
        self._lifeline = lifeline
        self._supervisor = os.getppid()
        self._command_line = prctl.CommandLine()
        #: Requests that were not begun, each with its descriptors.
        self._waiting: deque[tuple[Any, list[int]]] = deque()

    def prepare(self, name: str = "zmqtriton-fork-server") -> None:
        prctl.set_name(name)
        self._command_line.show([sys.executable, *sys.argv[:3]])
        self.ignore_signals()
        _make_ahead()
        freeze()

    def ignore_signals(self) -> None:
        for number in process.ORDERLY:
            signal.signal(number, signal.SIG_IGN)

    def run(self) -> list[str] | None:
        """Serve requests; see the function run()."""
        self._lifeline.send(wire.Synced(0))
        while not self._lifeline.ended:
            self._lifeline.wait()
            self._waiting.extend(self._lifeline.receive())
            while self._waiting:
                message, descriptors = self._waiting.popleft()
                if type(message) is wire.Call:
                    arguments = self._fork(message, descriptors)
                    if arguments is not None:
                        return arguments
                _close(descriptors)
        return None

    def _fork(self, call: wire.Call, descriptors: list[int]) -> list[str] | None:
        """Fork twice, so that the stub is an orphan, which the supervisor adopts."""
        gate, key = os.pipe()
        try:
            between = _fork_briefly()
        except OSError as error:
            self._lifeline.send(
                wire.CallResult(call.id, InternalError.number, f"cannot fork: {error}", "")
            )
            _close((gate, key))
            return None
        if between:
            os.close(gate)
            status = os.waitpid(between, 0)[1]
            # only now: until here the stub was the child of that one
            os.close(key)
            if status:
                self._lifeline.send(
                    wire.CallResult(call.id, InternalError.number, "cannot fork twice", "")
                )
            return None
        os.close(key)
        _fork_and_leave()
        os.read(gate, 1)
        os.close(gate)
        return self._become(call, descriptors)

    def _become(self, call: wire.Call, descriptors: list[int]) -> list[str]:
        """Set up the new process; return the arguments of a stub, or of a template.

        From here on it is like a process that was spawned.
        """
        os.setpgid(0, 0)
        for number, handler in process.ORDERLY.items():
            signal.signal(number, handler)
        *own, writing = descriptors
        for stream in (1, 2):
            os.dup2(writing, stream)
        request = json.loads(call.arguments)
        arguments = [word for one in zip(request["options"], map(str, own)) for word in one]
        arguments += request["words"]
        sys.argv[1:] = arguments
        command = [sys.executable, *sys.argv]
        if hasattr(sys, "orig_argv"):
            sys.orig_argv[:] = command
        self._command_line.show(command)
        stub_mark.overwrite(request["mark"])
        set_oom_score(request["oom_score"])
        user = request["user"]
        if user is not None:
            prctl.become_user(user["uid"], user["gid"], user["groups"], user["variables"])
        prctl.die_with(self._supervisor)
        os.environ.update(request["variables"])
        _limit_numpy(request["variables"].get("OPENBLAS_NUM_THREADS"))
        if "numpy.random" in sys.modules:  # all forks would draw the same; `random` reseeds itself
            sys.modules["numpy.random"].seed()
        # Python keeps the native id of the thread from before the fork
        getattr(threading.main_thread(), "_set_native_id", lambda: None)()
        self._lifeline.send(wire.CallResult(call.id, 0, "", str(os.getpid())))
        if self._lifeline.ended or self._lifeline.is_backed_up:
            os._exit(1)  # nobody would ever talk to it
        self._lifeline.abandon()
        _close((writing, *(d for _, others in self._waiting for d in others)))
        return arguments


def set_oom_score(score: int) -> None:
    """Set the OOM score, so that the kernel kills a stub before the fork server."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb", 0) as file:
        file.write(b"%d" % score)


def _fork_briefly() -> int:
    """Fork for a child that only forks again and ends: its interpreter is not repaired."""
    child = int(_FORK())
    if child < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return child


def _fork_and_leave() -> None:
    """Fork as Python does, which repairs the child's interpreter; return only in the child."""
    try:
        child = os.fork()
    except OSError:
        os._exit(1)
    if child:
        os._exit(0)


def fork_in_vain() -> None:
    """Fork once for nothing, so that libraries run their handlers before a fork."""
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


def mapped_files(word: str) -> set[str]:
    """Return the files with this word in their paths that this process has mapped."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return {line.split(None, 5)[-1].strip() for line in maps if word in line}


def _limit_numpy(threads: str | None) -> None:
    """Limit the threads of the OpenBLAS that was loaded before this process had its variables.

    Sets the number itself: OpenBLAS's function for it would also start the threads.
    """
    if threads is None:
        return
    for path in mapped_files("openblas"):
        with contextlib.suppress(OSError, ValueError):  # another build of it
            number = ctypes.c_int.in_dll(ctypes.CDLL(path), "blas_cpu_number")
            number.value = min(number.value, int(threads))


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
