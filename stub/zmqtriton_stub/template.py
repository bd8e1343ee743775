"""The template of a model whose INSTANCES are forks: a process that has loaded it, and forks them.

Imports model.py and calls TritonPythonModel.preload once; all instances share the objects that it
makes until they write to them. Refuses to continue if a fork would be incomplete: with threads, an
event loop, or CUDA. Answers the supervisor as the fork server does.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
from contextlib import suppress
from typing import Any, Callable, FrozenSet, List, NamedTuple, NoReturn, Optional, Sequence, Tuple

from zmqtriton_floor import prctl, wire
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_floor.reasons import Kind, Reason
from zmqtriton_stub import instance as this_process
from zmqtriton_stub import model_code
from zmqtriton_stub.api.errors import clip, reason_of
from zmqtriton_stub.broker.between_threads import ThreadOutbox
from zmqtriton_stub.fork_server import ForkServer, fork_in_vain, mapped_files
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.keeping import Keeping, NotKept
from zmqtriton_stub.model import import_class
from zmqtriton_stub.own_process import OwnProcess, check_files, freeze, take_priority

_EPOLL = "anon_inode:[eventpoll]"
_INSTEAD = "in initialize(), which each instance runs after its fork"
#: Obstacles to forks of a process.
CUDA, THREADS, EVENT_LOOP = "CUDA", "threads", "event loop"
_REFUSALS = {
    CUDA: "CUDA was initialised by the import of model.py or in preload(), and does not work in "
    f"a fork. Load to the CPU there, and move to the GPU {_INSTEAD}",
    THREADS: "threads are alive after preload(), which a fork does not have: {threads}. "
    f"End them there, have the library use one thread, or start them {_INSTEAD}",
    EVENT_LOOP: "an event loop (or gRPC channel) is open after preload(), and all forks would "
    f"share its epoll descriptor. Close it there, or open it {_INSTEAD}",
}
#: An open descriptor: its number, and the target of its link in /proc.
_Descriptor = Tuple[str, str]
#: Threads of libraries whose names say little.
_ORIGINS = {name: "of an open gRPC channel" for name in ("event_engine", "grpc_global_tim")}


class ForkRefusal(Exception):
    """Raised if a fork of this process would be incomplete."""


class Preloaded(OwnProcess):
    """The process of an instance whose model was imported before the fork."""

    def __init__(self, template: StubInstance, model_class: Any) -> None:
        self.measures = template.measures
        self._class = model_class

    def model_class(self, load: wire.LoadModel, instance: StubInstance) -> Any:
        take_priority(json.loads(load.config), instance.log)
        return self._class


#: A new stub: its arguments, the names of the modules that were there before, its surroundings.
Born = Tuple[List[str], "frozenset[str]", Preloaded]


def run(descriptor: int) -> Optional[Born]:
    """Return the parts in a new stub; None in the template at its end."""
    lifeline = Lifeline.inherited(descriptor)
    fork_server = ForkServer(lifeline)
    fork_server.prepare("zmqtriton-template")
    # ONNX Runtime would start a thread when it is imported, which reports to its makers
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    loaded = load_once(lifeline, _check)
    while loaded is not None:
        prctl.flush_output()
        ctypes.CDLL(None).fflush(None)  # otherwise each fork would print it, too
        freeze()
        shared = frozenset(sys.modules)
        arguments = fork_server.run()
        sys.argv[1:] = []
        if arguments is None:
            break
        if arguments[0] != "--template":
            return arguments, shared, Preloaded(loaded.template, loaded.model_class)
        # the template of the model's next code, in a fork of this one
        lifeline = Lifeline.inherited(int(arguments[1]))
        fork_server = ForkServer(lifeline)
        fork_server.ignore_signals()
        loaded = _load_again(lifeline, loaded)
    return None


class Loaded(NamedTuple):
    """A model that is loaded for all of its instances."""

    #: Instance that the model's code sees while it is imported, before the real ones exist.
    template: StubInstance
    model_class: Any
    config: Any
    keeping: Keeping


def load_once(
    lifeline: Lifeline,
    check: Callable[[FrozenSet[_Descriptor]], None],
    prepare: Callable[[wire.LoadModel], object] = bool,
) -> Optional[Loaded]:
    """Load the model that the supervisor names; None if the supervisor has gone.

    `check` may raise a ForkRefusal; it gets the descriptors that were open before the load.
    `prepare` is called before the import.
    """
    load = _await_load(lifeline)
    if load is None:
        return None
    sys.argv[1:] = []  # as models find it
    template = StubInstance(load, ThreadOutbox(lifeline.send).put)
    this_process.current = template
    try:
        before = open_descriptors()
        prepare(load)
        model_class, keeping = _preload(load)
        check(before)
    except BaseException as error:  # noqa: BLE001 - the model's code may raise anything
        _end(lifeline, wire.LoadFailed(_reason_of(error)))
    return Loaded(template, model_class, json.loads(load.config), keeping)


def _load_again(lifeline: Lifeline, old: Loaded) -> Optional[Loaded]:
    """Load changed code in this fork; None if the supervisor has gone.

    If the fork can keep nothing, it reports the reason and ends, and a new process loads the model.
    The same happens if the code raises, because a library may refuse a second registration of a
    name. A syntax error fails the load at once.
    """
    load = _await_load(lifeline)
    if load is None:
        return None
    template = StubInstance(load, ThreadOutbox(lifeline.send).put, measures=old.template.measures)
    this_process.current = template
    config = json.loads(load.config)
    try:
        before = open_descriptors()
        check_files(config, load.directory)
        model_class = old.keeping.renew(load, follow_code(load))
        _check(before)
    except NotKept as reason:
        _end(lifeline, wire.Kept(0, clip(str(reason))))
    except SyntaxError as error:
        _end(lifeline, wire.LoadFailed(_reason_of(error)))
    except BaseException as error:  # noqa: BLE001 - the model's code may raise anything
        text = clip(f"its code raised in a copy of its template: {_reason_of(error).text}")
        _end(lifeline, wire.Kept(0, text))
    lifeline.send(wire.Kept(1, clip(old.keeping.label)))
    return old._replace(template=template, model_class=model_class, config=config)


def _reason_of(error: BaseException) -> Reason:
    if isinstance(error, ForkRefusal):
        return Reason.of(Kind.OTHER, clip(f"INSTANCES forks: {error}"))
    return reason_of(error)


def _end(lifeline: Lifeline, report: Any) -> NoReturn:
    """Report, and end at once: Python would wait for threads of the model."""
    lifeline.send(report)
    prctl.flush_output()
    os._exit(0)


def _await_load(lifeline: Lifeline) -> Optional[wire.LoadModel]:
    """Return the supervisor's first message; None if it has gone."""
    while not lifeline.ended:
        lifeline.wait()
        for message, descriptors in lifeline.receive():
            for descriptor in descriptors:
                os.close(descriptor)
            if type(message) is wire.LoadModel:
                return message
    return None


def _preload(load: wire.LoadModel) -> Tuple[Any, Keeping]:
    """Return the model's class, preloaded. Raises the exceptions of its code."""
    check_files(json.loads(load.config), load.directory)
    keeping = Keeping(load, follow_code(load))
    model_class = import_class(load)
    keeping.preload(model_class)
    return model_class, keeping


def follow_code(load: wire.LoadModel) -> model_code.ModelCode:
    return model_code.begin((load.directory, os.path.dirname(load.path)), load.bytecode)


def open_descriptors() -> FrozenSet[_Descriptor]:
    descriptors = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one of the listing
            descriptors.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return frozenset(descriptors)


def _check(before: FrozenSet[_Descriptor]) -> None:
    """Raise ForkRefusal if a fork would lack, or share, something that the preload has started."""
    obstacle, threads = find_obstacle(before)
    if obstacle:
        raise ForkRefusal(_REFUSALS[obstacle].format(threads=", ".join(threads)))


def find_obstacle(before: FrozenSet[_Descriptor]) -> Tuple[str, Sequence[str]]:
    """Return the obstacle to forks of this process, or "", and the threads if it is these.

    `before` are the descriptors that were open before the code that may have made it unfit.
    """
    if _is_cuda_begun():
        return CUDA, ()
    threads = _threads_after_fork()
    if threads:
        return THREADS, threads
    if any(leads_to == _EPOLL for _, leads_to in open_descriptors() - before):
        return EVENT_LOOP, ()
    return "", ()


def _is_cuda_begun() -> bool:
    """Return whether CUDA was initialised, by its driver if that is loaded."""
    count = ctypes.c_int()
    paths = sorted(mapped_files("libcuda.so"))
    return any(not ctypes.CDLL(path).cuDeviceGetCount(ctypes.byref(count)) for path in paths)


def _threads_after_fork() -> List[str]:
    """Return the names of threads that still run after a fork.

    Libraries that support forks, such as OpenBLAS, end their threads before each.
    """
    names = [f"'{one.name}'" for one in threading.enumerate() if one is not threading.main_thread()]
    if names or len(os.listdir("/proc/self/task")) == 1:
        return names
    fork_in_vain()
    for thread in os.listdir("/proc/self/task"):
        if int(thread) == os.getpid():
            continue
        path = f"/proc/self/task/{thread}/comm"
        # it may have just ended
        with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            name = file.read().strip()
            names.append(f"'{name}' ({_ORIGINS.get(name, 'native')})")
    return names
