"""Requests of routes to models: BLS, as of any model's code."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, AsyncIterator, Dict, Iterable, List, Mapping

import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_addons.routes.backend.api import RouteError, infer

_STATUSES = {
    "INVALID_ARG": 400,
    "NOT_FOUND": 404,
    "UNAVAILABLE": 503,
    "UNSUPPORTED": 501,
    "ALREADY_EXISTS": 400,
    "CANCELLED": 499,
}
#: For the next responses of streams, one thread each.
_waiting = ThreadPoolExecutor(256, "stream")


class InferError(RouteError):
    """Raised for what a model has answered: the route's answer, unless the route catches it."""


class Calls:
    """Makes the requests."""

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
        tensors = [_tensor(name, value, declared.get(name)) for name, value in inputs.items()]
        return pb_utils.InferenceRequest(
            request_id=request_id,
            inputs=tensors,
            requested_output_names=list(outputs),
            model_name=model or self._model,
            model_version=version,
            parameters=parameters,
        )


def _tensor(name: str, value: Any, declaration: Any) -> Any:
    """Return an input; values that are no arrays get type and shape as the model declares them."""
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
        raise RouteError(500, f"input '{name}' is no tensor: {error}") from None


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
    """Return what the parameter of a model of routes says of the model's inputs."""
    return dict(json.loads(text or "{}"))
