"""The model that runs another model's routes.py.

Its calls of models are BLS, as in any model's code.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import os
import sys
import threading
import time
import traceback
import types
from concurrent.futures import ThreadPoolExecutor
from typing import Any, AsyncIterator, Dict, Iterable, List, Mapping, Set

import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_extras.routes import names
from zmqtriton_extras.routes.backend import api
from zmqtriton_extras.routes.backend.answers import Answer
from zmqtriton_extras.routes.backend.api import RouteError, infer
from zmqtriton_extras.routes.backend.asgi import Application

_LOOK_EVERY_S = 0.1
_BLOCKED_STATUS = 70
_MAX_THREADS, _MAX_LOST = 64, 32
_STATUSES = {
    "INVALID_ARG": 400,
    "NOT_FOUND": 404,
    "UNAVAILABLE": 503,
    "UNSUPPORTED": 501,
    "ALREADY_EXISTS": 400,
    "CANCELLED": 499,
}
#: Threads that wait for the next responses of streams, one for each.
_waiting = ThreadPoolExecutor(256, "stream")


class TritonPythonModel:
    def initialize(self, args: Dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        model = args["model_name"][: -len(names.SUFFIX)]
        self._model = model
        refusal = names.parameter(config, names.REFUSAL)
        if refusal:
            raise pb_utils.TritonModelException(refusal)
        self._within_s = float(names.parameter(config, names.SECONDS) or 60)
        Calls(model, declared_inputs(names.parameter(config, names.INPUTS)))
        module = _load(names.parameter(config, names.DIRECTORY))
        app = getattr(module, "app", None)
        if not (api.rows or callable(app)):
            raise pb_utils.TritonModelException(
                f"routes.py of model '{model}' has no function with @route, and no ASGI "
                "application that is called app: add one"
            )
        self._application = Application(app) if callable(app) else None
        #: The threads of routes that are no coroutines.
        self._threads = ThreadPoolExecutor(_MAX_THREADS, "route")
        #: Calls in these threads that still run after the client has left, with their time of loss.
        self._lost: Dict[Any, float] = {}
        self._starting: Any = None
        self._active: Set[Any] = set()
        self._beating: Any = None
        self._beat_s = time.monotonic()
        self._what = ""
        threading.Thread(target=self._watch_loop, name="routes", daemon=True).start()

    async def execute(self, requests: List[Any]) -> None:
        await asyncio.gather(*map(self._serve, requests))

    # --------------------------------------------------------------- a request

    async def _serve(self, request: Any) -> None:
        answer = Answer(request)
        inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        head = json.loads(inputs[names.HEAD][0])
        body = memoryview(inputs[names.BODY])
        what = self._what = f"{head.get('method', 'the description')} {head.get('path', '')}"
        task = asyncio.ensure_future(self._answer(head, body, answer))
        if not self._active:
            self._beat_s = time.monotonic()
            self._beating = asyncio.ensure_future(self._beat())
        self._active.add(task)
        try:
            await self._follow(task, answer)
            await task
        except api.RouteError as error:
            answer.fail(error.status, error.text)
        except asyncio.CancelledError:
            if not task.cancelled():
                task.cancel()
                raise
            answer.fail(499, "the client has left")
        except _LateError:
            pb_utils.Logger.log_warn(f"{what} of {self._model} has not answered in time")
            within = f"the route has not responded within {self._within_s:g} s"
            answer.fail(504, f"{within}: raise ROUTES_SECONDS if it needs more")
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - an edge: the client is told, and the log
            pb_utils.Logger.log_error(f"{what} of {self._model}: {traceback.format_exc()}")
            answer.fail(500, f"the route has failed, see the model's log: {type(error).__name__}")
        finally:
            self._active.discard(task)

    async def _follow(self, task: Any, answer: Answer) -> None:
        """Wait for a route; cancel it if its client leaves, or if it takes too long."""
        end_s = time.monotonic() + self._within_s
        begun = asyncio.ensure_future(answer.begun.wait())
        try:
            while not task.done():
                await asyncio.wait(
                    {task, begun} if not begun.done() else {task},
                    timeout=_LOOK_EVERY_S,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not task.done() and answer.is_cancelled:
                    task.cancel()
                    await asyncio.wait({task}, timeout=self._within_s)
                    return
                if not begun.done() and time.monotonic() >= end_s and not task.done():
                    task.cancel()
                    raise _LateError
        finally:
            begun.cancel()

    async def _answer(self, head: Dict[str, Any], body: memoryview, answer: Answer) -> None:
        if self._application is not None:
            if self._starting is None:
                self._starting = asyncio.ensure_future(self._application.start())
            await asyncio.shield(self._starting)
        if names.DESCRIBES in head:
            await answer.give(await self._describe(head[names.DESCRIBES]))
            return
        request = api.Request(head, body)
        try:
            row, request.params = api.find(request.method, request.path)
        except api.RouteError:
            if self._application is None:
                raise
            await self._application.answer(head, body, answer)
            return
        await answer.give(await self._call(row.function, request))

    async def _call(self, function: Any, request: Any) -> Any:
        if inspect.isasyncgenfunction(function):
            return function(request, api.infer)
        if inspect.iscoroutinefunction(function):
            return await function(request, api.infer)
        running = self._threads.submit(function, request, api.infer)
        try:
            value = await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if not running.done():
                self._lost[running] = time.monotonic()
                running.add_done_callback(lambda done: self._lost.pop(done, None))
            raise
        return await value if inspect.isawaitable(value) else value

    async def _describe(self, root: str) -> Dict[str, Any]:
        own = api.describe()
        if self._application is None:
            return own
        document = await self._application.describe(root)
        return {**document, "paths": {**document["paths"], **own["paths"]}}

    # ------------------------------------------------------------- its watchers

    async def _beat(self) -> None:
        while self._active:
            self._beat_s = time.monotonic()
            await asyncio.sleep(_LOOK_EVERY_S)

    def _watch_loop(self) -> None:
        """End the process if a route blocks all others; the server starts another process."""
        while True:
            time.sleep(min(1.0, self._within_s / 4))
            now = time.monotonic()
            silent_s = now - self._beat_s
            if self._active and silent_s > self._within_s:
                self._end(f"blocks all others for {silent_s:.0f} s, probably {self._what}")
            lost = sum(now - since > self._within_s for since in list(self._lost.values()))
            if lost >= _MAX_LOST:
                self._end(f"hangs in {lost} threads, although nobody waits for it any more")

    def _end(self, text: str) -> None:
        sys.stderr.write(f"a route of model '{self._model}' {text}; its process ends\n")
        sys.stderr.flush()
        os._exit(_BLOCKED_STATUS)


class _LateError(Exception):
    """Raised when a route has not answered in time."""


def _load(directory: str) -> Any:
    """Import routes.py; makes `zmqtriton.routes` importable in any Python."""
    if importlib.util.find_spec("zmqtriton") is None:
        package = types.ModuleType("zmqtriton")
        package.__path__ = []
        package.routes = api  # type: ignore[attr-defined]
        sys.modules["zmqtriton"] = package
    sys.modules["zmqtriton.routes"] = api
    sys.path.insert(0, directory)
    spec = importlib.util.spec_from_file_location("routes", os.path.join(directory, names.FILE))
    if spec is None or spec.loader is None:
        raise ImportError(f"no module in {directory}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["routes"] = module
    spec.loader.exec_module(module)
    return module


class InferError(RouteError):
    """Raised for a model's error response, which becomes the route's unless it is caught."""


class Calls:
    """Makes the calls of models."""

    def __init__(self, model: str, inputs: Mapping[str, Any]) -> None:
        """Set up; `inputs` has the datatype and the dims of each of the model's own inputs."""
        self._model = model
        self._inputs = inputs
        infer.ask, infer.ask_stream = self._ask, self._ask_stream

    async def _ask(self, inputs: Mapping[str, Any], **more: Any) -> Dict[str, Any]:
        response = await self._request(inputs, **more).async_exec()
        return _outputs(response)

    async def _ask_stream(
        self, inputs: Mapping[str, Any], **more: Any
    ) -> AsyncIterator[Dict[str, Any]]:
        responses = await self._request(inputs, **more).async_exec(decoupled=True)
        loop = asyncio.get_running_loop()
        try:
            while True:
                # a response may take long, and other routes go on
                response = await loop.run_in_executor(_waiting, next, responses, None)
                if response is None:
                    return
                outputs = _outputs(response)
                if outputs:
                    yield outputs
        finally:
            responses.cancel()

    def _request(
        self,
        inputs: Mapping[str, Any],
        model: str = "",
        version: int = -1,
        outputs: Iterable[str] = (),
        parameters: Any = None,
        request_id: str = "",
    ) -> Any:
        declared = self._inputs if model in ("", self._model) else {}
        tensors = [tensor_of(name, value, declared.get(name)) for name, value in inputs.items()]
        return pb_utils.InferenceRequest(
            request_id=request_id,
            inputs=tensors,
            requested_output_names=list(outputs),
            model_name=model or self._model,
            model_version=version,
            parameters=parameters,
        )


def tensor_of(name: str, value: Any, declaration: Any) -> Any:
    """Return an input tensor; values that are no arrays get the declared type and shape."""
    if isinstance(value, pb_utils.Tensor):
        return value
    kind, dims = declaration or ("", [])
    array = value if isinstance(value, np.ndarray) else _array(name, value, kind)
    missing = len(dims) - array.ndim
    if missing > 0:  # a dimension that is not there is 1
        array = array.reshape((1,) * missing + array.shape)
    return pb_utils.Tensor(name, array)


def _array(name: str, value: Any, kind: str) -> Any:
    try:
        if kind == "TYPE_STRING" or isinstance(value, (bytes, str, memoryview)):
            return np.array(_encoded(value), np.object_)
        return np.array(value, pb_utils.triton_string_to_numpy(kind) if kind else None)
    except (TypeError, ValueError) as error:
        raise RouteError(500, f"input '{name}' must be an array or a list: {error}") from None


def _encoded(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_encoded(each) for each in value]
    return value.encode() if isinstance(value, str) else bytes(value)


def _outputs(response: Any) -> Dict[str, Any]:
    if response.has_error():
        error = response.error()
        raise InferError(_status(error), error.message())
    return {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}


def _status(error: Any) -> int:
    for name, status in _STATUSES.items():
        if error.code() == getattr(pb_utils.TritonError, name, None):
            return status
    return 500


def declared_inputs(text: str) -> Dict[str, List[Any]]:
    """Return the model's inputs, as the parameter of its model of routes has them."""
    return dict(json.loads(text or "{}"))
