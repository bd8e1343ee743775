"""The model's own code: imports model.py and calls its methods with Triton's arguments and rules.

Whatever the model raises passes through, for the loop to describe, but for what coroutines raise
that run in the background: that is logged here. Knows nothing of the broker.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Callable

from zmqtriton_floor import wire
from zmqtriton_stub import MODEL_PATH
from zmqtriton_stub.pb_config import ModelConfig
from zmqtriton_stub.pb_errors import TritonModelException, describe
from zmqtriton_stub.pb_types import InferenceRequest, InferenceResponse

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task


class Model:
    """The class TritonPythonModel of a model.py and, once initialized, its only instance."""

    def __init__(self, load: wire.Load, complain: Callable[[str], None]) -> None:
        """complain gets what goes wrong in the background, as text."""
        self._load = load
        self._complain = complain
        self._class: Any = _import(load).TritonPythonModel
        self._instance: Any = None
        self._execute: Callable[[list[InferenceRequest]], Any] | None = None
        self._event_loop: AbstractEventLoop | None = None
        self._is_decoupled = False
        self._must_return_none = (
            f"Python model '{load.instance}' is using the decoupled mode and the execute function "
            "must return None."
        )
        self._watched = -1
        #: Coroutines in the background; asyncio itself would forget them.
        self._tasks: set[Task[Any]] = set()

    def complete(self) -> str:
        """The configuration after the model's own auto_complete_config."""
        config: Any = ModelConfig(self._load.config)
        if hasattr(self._class, "auto_complete_config"):
            config = self._class.auto_complete_config(config)
        if not isinstance(config, ModelConfig):
            raise TritonModelException(
                f"auto_complete_config function in model '{self._load.model}' must return a valid "
                "pb.ModelConfig object."
            )
        return config.as_json()

    def initialize(self, config: str, is_decoupled: bool) -> None:
        load = self._load
        self._is_decoupled = is_decoupled
        self._instance = self._class()
        if hasattr(self._instance, "initialize"):
            arguments = {
                "model_config": config,
                "model_instance_kind": load.kind,
                "model_instance_name": load.instance,
                "model_instance_device_id": str(load.device),
                "model_repository": load.directory,
                "model_version": str(load.version),
                "model_name": load.model,
            }
            self._instance.initialize(arguments)
        self._execute = getattr(self._instance, "execute", None)

    def execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse | None]:
        """A response for each request; None where the response sender is to answer, or has."""
        if self._execute is None:
            raise TritonModelException(
                f"Python model {self._load.path} does not implement `execute` method."
            )
        count = len(requests)
        returned = self._execute(requests)
        if type(returned) is not list and isinstance(returned, Coroutine):
            if self._is_decoupled:
                self._begin(returned)
                return [None] * count
            returned = self._run(returned)
        if returned is None:
            return [None] * count
        if self._is_decoupled:
            raise TritonModelException(self._must_return_none)
        _check_responses(returned, requests, count)
        responses: list[InferenceResponse | None] = returned
        return responses

    def _run(self, coroutine: Any) -> Any:
        return self._loop().run_until_complete(coroutine)

    def _begin(self, coroutine: Any) -> None:
        task: Task[Any] = self._loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._complain(describe(error))
        elif task.result() is not None:
            self._complain(self._must_return_none)

    def _loop(self) -> AbstractEventLoop:
        import asyncio  # most models do without, and it takes long to import

        loop = self._event_loop
        if loop is None:
            loop = self._event_loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
        return loop

    @property
    def has_background(self) -> bool:
        """Whether there may be something for `run_background` to do."""
        return self._is_decoupled and self._event_loop is not None

    def run_background(self, descriptor: int) -> None:
        """Runs the event loop until this descriptor has input."""
        loop = self._loop()
        if self._watched != descriptor:
            self._watched = descriptor
            loop.add_reader(descriptor, loop.stop)
        loop.run_forever()

    def finalize(self) -> None:
        if self._event_loop is not None:
            _stop(self._event_loop)
        if hasattr(self._instance, "finalize"):
            self._instance.finalize()


def _check_responses(returned: Any, requests: list[InferenceRequest], count: int) -> None:
    if not isinstance(returned, list):
        raise TritonModelException(
            f"Expected a list in the execute return, found type '{type(returned)}'."
        )
    if len(returned) != count:
        raise TritonModelException(
            "Number of InferenceResponse objects do not match the number of InferenceRequest "
            f"objects. InferenceRequest(s) size is:{count}, and InferenceResponse(s) size "
            f"is:{len(returned)}\n"
        )
    for response in returned:
        if response is not None and not isinstance(response, InferenceResponse):
            raise TritonModelException(
                "Expected an 'InferenceResponse' object in the execute function return list, "
                f"found type '{type(response)}'."
            )


def _import(load: wire.Load) -> Any:
    directory, file = os.path.split(load.path)
    if not os.path.isfile(load.path):
        raise TritonModelException(f"Python model file not found in '{load.path}'")
    name, extension = os.path.splitext(file)
    if extension != ".py":
        raise TritonModelException(f"Model name must end with '.py'. Model name is \"{file}\".")
    for module in ("c_python_backend_utils", "triton_python_backend_utils"):
        _provide(module)
    parent, package = os.path.split(directory)
    sys.path.append(directory)
    if parent != load.directory:  # the code of several models, outside of them
        return importlib.import_module(name)
    sys.path.append(parent)
    return importlib.import_module(f"{package}.{name}")


def _provide(module: str) -> None:
    """Whatever lies in the model's environment under this name, the model gets ours."""
    path = os.path.join(MODEL_PATH, module, "__init__.py")
    spec = importlib.util.spec_from_file_location(module, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module in {path}")
    sys.modules[module] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[module])


def _stop(loop: AbstractEventLoop) -> None:
    """Cancels what still runs in the background, as asyncio.run() does at its end."""
    import asyncio

    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
