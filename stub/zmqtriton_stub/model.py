"""The model's own code: imports model.py and calls its methods with Triton's arguments and rules.

Exceptions of the model pass through; callers describe them. The model's event loop is here: it runs
while a coroutine is awaited, and while the stub waits. Knows nothing of the broker.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Coroutine
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable, List, NamedTuple, Optional, Sequence

from zmqtriton_floor import wire
from zmqtriton_floor.errors import closest_match
from zmqtriton_floor.lazy_names import new_module
from zmqtriton_stub import MODEL_PATH
from zmqtriton_stub import instance as this_process
from zmqtriton_stub.api import (
    errors,
    pb_utils,  # noqa: F401 - requests of models need all of it
)
from zmqtriton_stub.api.inference import InferenceRequest, InferenceResponse, no_response
from zmqtriton_stub.api.model_config import ModelConfig
from zmqtriton_stub.parts import divide_large
from zmqtriton_stub.watch import Watch

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task


class PackageFinder(NamedTuple):
    """Finds a single package, whose submodules Python then finds by itself.

    The model's interpreter may lack the package, or have another version. Only this package is made
    importable, not its neighbours: they may be all packages of the server.
    """

    name: str
    #: The directory that the package lies in.
    root: str

    def find_spec(
        self,
        fullname: str,
        path: Optional[Sequence[str]] = None,
        target: Optional[ModuleType] = None,
    ) -> Optional[ModuleSpec]:
        return PathFinder.find_spec(fullname, [self.root]) if fullname == self.name else None


def provide(package: str, directory: str) -> None:
    """Make a backend's package in this directory importable, with the packages around it.

    A package that is already imported under this name stays: then the process has the server
    itself.
    """
    name, *inner = package.split(".")
    home = os.path.abspath(directory)
    for folder in reversed(inner):
        if os.path.basename(home) != folder:
            return  # its files lie elsewhere than its name says, and only the environment knows
        home = os.path.dirname(home)
    errors.leave_out_frames_below(home)
    finder = PackageFinder(name, os.path.dirname(home))
    if name not in sys.modules and finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)


class NoRoomToWakeError(errors.TritonModelException):
    """Raised when a sleeping model cannot wake up, because memory for it is short."""


#: One for each request; None if a response sender is to answer, or has.
Responses = List[Optional[InferenceResponse]]
#: Types of what is in such a list; a model may have subclasses.
_RIGHT = frozenset((InferenceResponse, type(None)))


class PythonModel:
    """The class TritonPythonModel of a model.py and, once initialized, its only instance."""

    def __init__(
        self,
        load: wire.LoadModel,
        model_class: Any,
        watch: Watch | None = None,
        await_room: Callable[[], object] | None = None,
    ) -> None:
        """Set up; `await_room` waits for room for the memory that a model gives back in sleep.

        Raises NoRoomToWakeError.
        """
        self._load = load
        self.model_class = model_class
        self._instance: Any = None
        self._execute: Callable[[list[InferenceRequest]], Any] | None = None
        #: The model's own is_ready; None if it has none.
        self.is_ready: Callable[[], Any] | None = None
        #: Made for the first coroutine.
        self.event_loop: AbstractEventLoop | None = None
        self._is_decoupled = self._is_asleep = False
        #: False while an instance of other code serves with the same objects: this one's finalize()
        #: would destroy them.
        self.is_owner = True
        self._await_room = await_room
        #: Has the right to rounds, which is lent while code of the model runs in the loop's thread.
        self.watch = watch or Watch()
        #: Maximum number of batches that it executes at once: more than one only if execute() is a
        #: coroutine.
        self.slots = 1
        self._is_awaiting = False
        #: Coroutines in the background; asyncio itself would forget them.
        self._tasks: set[Task[Any]] = set()

    def complete(self) -> str:
        """Return the configuration after the model's own auto_complete_config; "" without one."""
        if not hasattr(self.model_class, "auto_complete_config"):
            return ""
        config = self.model_class.auto_complete_config(ModelConfig(self._load.config))
        if not isinstance(config, ModelConfig):
            raise errors.TritonModelException(
                f"auto_complete_config function in model '{self._load.model}' must return a valid "
                "pb.ModelConfig object."
            )
        return config.as_json()

    def initialize(
        self,
        config: str,
        instance: this_process.StubInstance,
        predecessor: PythonModel | None = None,
    ) -> None:
        """Make the model's instance, which adopts from `predecessor`, if it has one."""
        load = self._load
        self._is_decoupled = instance.is_decoupled
        self._instance = self.model_class()
        if predecessor is not None:
            self.is_owner, self._is_asleep = False, predecessor._is_asleep
            self._instance.adopt(predecessor._instance)
        elif hasattr(self._instance, "initialize"):
            arguments = {
                "model_config": config,
                "model_instance_kind": load.kind,
                "model_instance_name": load.instance,
                "model_instance_device_id": str(load.device),
                "model_repository": load.directory,
                "model_version": str(load.version),
                "model_name": load.model,
            }
            try:
                self._instance.initialize(arguments)
            finally:
                if this_process.is_forked:
                    this_process.end_forked()
        self._execute = getattr(self._instance, "execute", None)
        self.is_ready = getattr(self._instance, "is_ready", None)
        if instance.max_inflight > 1:
            if inspect.iscoroutinefunction(self._execute):
                self.slots = instance.max_inflight
            else:
                instance.log("W", "MAX_INFLIGHT has no effect: execute() is not 'async def'")
        if self._execute is not None:
            self._execute = divide_large(self._execute, instance)

    def rest(self, sleeps: bool) -> None:
        """Let the model free its memory, or take it again; a request also wakes it up."""
        for name in ("wake_up", "sleep"):
            if not hasattr(self._instance, name):
                raise errors.TritonModelException(f"its TritonPythonModel needs a method {name}()")
        if sleeps is not self._is_asleep:
            if not sleeps and self._await_room is not None:
                self._await_room()
            self.watch.give_back()
            try:
                (self._instance.sleep if sleeps else self._instance.wake_up)()
            finally:
                self.watch.claim()
            self._is_asleep = sleeps

    def execute(self, requests: list[InferenceRequest]) -> Responses | Task[Any] | None:
        """Return the responses; or a background task, whose result goes to `check`."""
        if self._is_asleep:
            self.rest(False)
        if self._execute is None:
            raise errors.TritonModelException(self._lack_of_execute())
        count = len(requests)
        self.watch.give_back()
        try:
            returned = self._execute(requests)
            if type(returned) is not list and isinstance(returned, Coroutine):
                if self._is_decoupled or self.slots > 1:
                    return self._begin(returned)
                returned = self._run(returned)
        finally:
            if this_process.is_forked:
                this_process.end_forked()
            self.watch.claim()
        if (
            not self._is_decoupled
            and type(returned) is list
            and len(returned) == count
            and _RIGHT.issuperset(map(type, returned))
        ):
            return returned
        return self.check(returned, count)

    def _lack_of_execute(self) -> str:
        names = [name for name in dir(self._instance) if not name.startswith("_")]
        meant = closest_match("execute", names)
        hint = f" Is '{meant}' meant to be it?" if meant else ""
        return f"Python model {self._load.path} does not implement `execute` method.{hint}"

    def check(self, returned: Any, count: int) -> Responses | None:
        """Return the checked result of execute() or of its task. Raises if it is wrong."""
        if returned is None:
            return None
        if self._is_decoupled:
            raise errors.TritonModelException(
                f"Python model '{self._load.instance}' is using the decoupled mode and the execute "
                "function must return None."
            )
        if not isinstance(returned, list):
            raise errors.TritonModelException(
                f"Expected a list in the execute return, found type '{type(returned)}'."
            )
        if len(returned) != count:
            raise errors.TritonModelException(
                "Number of InferenceResponse objects do not match the number of InferenceRequest "
                f"objects. InferenceRequest(s) size is:{count}, and InferenceResponse(s) size "
                f"is:{len(returned)}\n"
            )
        for response in returned:
            if response is not None and not isinstance(response, InferenceResponse):
                raise no_response(response)
        return returned

    # ------------------------------------------------------------ event loop

    def _run(self, coroutine: Any) -> Any:
        loop = self._loop()
        self._is_awaiting = True
        # what came together with this batch is here already, and nothing tells of it again
        loop.call_soon(self.watch.run_round)
        try:
            return loop.run_until_complete(coroutine)
        finally:
            self._is_awaiting = False

    def _begin(self, coroutine: Any) -> Task[Any]:
        task: Task[Any] = self._loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _loop(self) -> AbstractEventLoop:
        import asyncio  # most models do without it, and it takes long to import

        loop = self.event_loop
        if loop is None:
            loop = self.event_loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
            self.watch.serve(loop, self._look)
        return loop

    def _look(self) -> None:
        if self._is_awaiting:
            self.watch.run_round()
        else:
            self._loop().stop()

    def has_background(self) -> bool:
        """Return whether `run_background` may have work; there must be an event loop.

        An execute() that has returned may have left tasks.
        """
        import asyncio

        # asyncio forgets a task at its end. The loop may stop then, before the callbacks that
        # answer: until these have run, the task is in ours.
        return self._is_decoupled or bool(self._tasks or asyncio.all_tasks(self.event_loop))

    def run_background(self, max_s: float | None) -> None:
        """Run the event loop until there is work for a round, or for this long."""
        loop = self._loop()
        timer = None if max_s is None else loop.call_later(max_s, loop.stop)
        self.watch.give_back()
        try:
            loop.run_forever()
        finally:
            self.watch.claim()
        if timer is not None:
            timer.cancel()

    def finalize(self) -> None:
        if self.event_loop is not None:
            self.event_loop.remove_reader(self.watch.loop)
            _stop(self.event_loop)
        if hasattr(self._instance, "finalize") and self.is_owner:
            self._instance.finalize()

    def forget(self) -> None:
        """Drop the model's instance, which ends now unless its own code refers to it."""
        self.model_class = self._instance = self._execute = self.is_ready = None


def import_class(load: wire.LoadModel) -> Any:
    """Return the class of model.py. Raises the exceptions of its code."""
    directory, file = os.path.split(load.path)
    if not os.path.isfile(load.path):
        raise errors.TritonModelException(f"Python model file not found in '{load.path}'")
    name, extension = os.path.splitext(file)
    if extension != ".py":
        raise errors.TritonModelException(
            f"Model name must end with '.py'. Model name is \"{file}\"."
        )
    provide_api()
    if load.package:
        provide(load.package, directory)
    parent, package = os.path.split(directory)
    sys.path.append(directory)
    if parent != load.directory:  # one file alone, or code shared by several models
        return _class_of(_import_file(name, load.path))
    sys.path.append(parent)
    _import_package(package, parent)
    return _class_of(importlib.import_module(f"{package}.{name}"))


def _class_of(module: ModuleType) -> Any:
    """Return the class of a model; a module with functions instead may lack their decorator."""
    if not hasattr(module, "TritonPythonModel"):
        names = [
            name
            for name, value in vars(module).items()
            if inspect.isfunction(value) or "__call__" in getattr(value, "__dict__", ())
            if getattr(value, "__module__", "") == module.__name__
        ]
        if names:
            raise AttributeError(
                f"module '{module.__name__}' has no attribute 'TritonPythonModel'; put @model of "
                f"zmqtriton above {', '.join(names)}"
            )
    return module.TritonPythonModel


def _import_package(name: str, directory: str) -> None:
    """Import the directory of a version as a package, without a search of the whole path."""
    spec = None if name in sys.modules else PathFinder.find_spec(name, [directory])
    if spec is not None:
        sys.modules[name] = package = importlib.util.module_from_spec(spec)
        if spec.loader is not None:
            spec.loader.exec_module(package)


def _import_file(name: str, path: str) -> Any:
    """Import the file at this path, even if an installed module has its name."""
    module, load = new_module(name, path)
    sys.modules.setdefault(name, module)
    load(module)
    return module


def provide_api() -> None:
    """Provide pb_utils under Triton's names, before modules of the model's environment."""
    for name in ("c_python_backend_utils", "triton_python_backend_utils"):
        path = os.path.join(MODEL_PATH, name, "__init__.py")
        if getattr(sys.modules.get(name), "__file__", None) != path:
            module, load = new_module(name, path)
            sys.modules[name] = module
            load(module)


def _stop(loop: AbstractEventLoop) -> None:
    """Cancel background tasks, as asyncio.run() does at its end."""
    import asyncio

    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
