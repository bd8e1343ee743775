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
from typing import Any, Callable, FrozenSet, List, NamedTuple, NoReturn, Optional, Tuple

from zmqtriton_floor import wire
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_floor.reasons import Kind, Reason
from zmqtriton_stub import instance as this_process
from zmqtriton_stub import model_code
from zmqtriton_stub.api.errors import clip, reason_of
from zmqtriton_stub.broker.between_threads import ThreadOutbox
from zmqtriton_stub.fork_server import ForkServer, fork_in_vain, freeze
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.model import import_class
from zmqtriton_stub.own_process import OwnProcess, check_files, take_priority

EPOLL = "anon_inode:[eventpoll]"
_INSTEAD = "in initialize(), which each instance runs after its fork"
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
    if loaded is None:
        return None
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ctypes.CDLL(None).fflush(None)  # otherwise each fork would print it, too
    freeze()
    shared = frozenset(sys.modules)
    arguments = fork_server.run()
    if arguments is None:
        return None
    sys.argv[1:] = []
    return arguments, shared, Preloaded(loaded.template, loaded.model_class)


class Loaded(NamedTuple):
    """A model that is loaded for all of its instances."""

    #: Instance that the model's code sees while it is imported, before the real ones exist.
    template: StubInstance
    model_class: Any
    config: Any


def load_once(
    lifeline: Lifeline, check: Callable[[FrozenSet[_Descriptor]], None]
) -> Optional[Loaded]:
    """Load the model that the supervisor names; None if the supervisor has gone.

    `check` may raise a ForkRefusal; it gets the descriptors that were open before the load.
    """
    load = _await_load(lifeline)
    if load is None:
        return None
    sys.argv[1:] = []  # as models find it
    template = StubInstance(load, ThreadOutbox(lifeline.send).put)
    this_process.current = template
    try:
        before = open_descriptors()
        model_class = _preload(load)
        check(before)
    except ForkRefusal as refusal:
        _fail(lifeline, Reason.of(Kind.OTHER, clip(f"INSTANCES forks: {refusal}")))
    except BaseException as error:  # noqa: BLE001 - the model's code may raise anything
        _fail(lifeline, reason_of(error))
    return Loaded(template, model_class, json.loads(load.config))


def _fail(lifeline: Lifeline, reason: Reason) -> NoReturn:
    """Report the reason, and end at once: Python would wait for threads of the model."""
    lifeline.send(wire.LoadFailed(reason))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
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


def _preload(load: wire.LoadModel) -> Any:
    """Return the model's class, preloaded. Raises the exceptions of its code."""
    check_files(json.loads(load.config), load.directory)
    model_code.begin((load.directory, os.path.dirname(load.path)), load.bytecode)
    model_class = import_class(load)
    preload = getattr(model_class, "preload", None)
    if preload is not None:
        preload(
            {
                "model_config": load.config,
                "model_repository": load.directory,
                "model_version": str(load.version),
                "model_name": load.model,
            }
        )
    return model_class


def open_descriptors() -> FrozenSet[_Descriptor]:
    descriptors = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one of the listing
            descriptors.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return frozenset(descriptors)


def _check(before: FrozenSet[_Descriptor]) -> None:
    """Raise ForkRefusal if a fork would lack, or share, something that the preload has started."""
    if is_cuda_begun():
        raise ForkRefusal(
            "CUDA was initialised by the import of model.py or in preload(), and does not work in "
            f"a fork. Load to the CPU there, and move to the GPU {_INSTEAD}"
        )
    threads = threads_after_fork()
    if threads:
        raise ForkRefusal(
            f"threads are alive after preload(), which a fork does not have: {', '.join(threads)}. "
            f"End them there, have the library use one thread, or start them {_INSTEAD}"
        )
    if any(leads_to == EPOLL for _, leads_to in open_descriptors() - before):
        raise ForkRefusal(
            "an event loop (or gRPC channel) is open after preload(), and all forks would share "
            f"its epoll descriptor. Close it there, or open it {_INSTEAD}"
        )


def is_cuda_begun() -> bool:
    """Return whether CUDA was initialised, by its driver if that is loaded."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = {line.split(None, 5)[-1].strip() for line in maps if "libcuda.so" in line}
    count = ctypes.c_int()
    return any(not ctypes.CDLL(p).cuDeviceGetCount(ctypes.byref(count)) for p in sorted(paths))


def threads_after_fork() -> List[str]:
    """Return the names of threads that still run after a fork.

    Libraries that support forks, such as OpenBLAS, end their threads before each.
    """
    names = [f"'{one.name}'" for one in threading.enumerate() if one is not threading.main_thread()]
    if names:
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
