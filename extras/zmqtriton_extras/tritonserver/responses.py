"""A request to a model, and the iterators over its responses.

The last response is final: a stream that ends without one gets an empty one, as in Triton.
"""

from __future__ import annotations

import asyncio
import copy
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from zmqtriton.sdk.process import InferenceRequest as Question
from zmqtriton.sdk.process import InferenceResponse as Answer
from zmqtriton.sdk.process import Model as AskedModel
from zmqtriton.sdk.wire import ZmqTritonError, datatypes, errors, wire
from zmqtriton_extras.tritonserver.enums import (
    DataType,
    InvalidArgumentError,
    RequestFlag,
    TritonError,
    UnsupportedError,
    translate,
)
from zmqtriton_extras.tritonserver.tensor import DeviceOrMemoryType, Tensor

_PARAMETER_TYPES = (str, int, float, bool)


@dataclass
class InferenceRequest:
    """A request to a model, which may be sent several times."""

    model: Any
    request_id: str | None = None
    #: A sum of RequestFlag.
    flags: int = 0
    correlation_id: int | str | None = None
    priority: int = 0
    #: Microseconds.
    timeout: int = 0
    inputs: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, str | int | bool | float] = field(default_factory=dict)
    output_memory_type: DeviceOrMemoryType | None = None
    #: Gets each response, beside the iterator.
    response_queue: queue.SimpleQueue[Any] | asyncio.Queue[Any] | None = None
    _serialized_inputs: dict[str, Tensor] = field(init=False, default_factory=dict)
    _server: Any = field(init=False)

    def __post_init__(self) -> None:
        self._server = self.model._server


def question(request: InferenceRequest) -> Question:
    """Return the request in the server's form. Raises InvalidArgumentError."""
    for value in request.parameters.values():
        if type(value) not in _PARAMETER_TYPES:
            raise InvalidArgumentError(
                f"Unsupported Value. Can't convert {type(value)} to Request Parameter"
            )
    flags = int(request.flags)
    return Question(
        {name: _tensor(name, value) for name, value in request.inputs.items()},
        request_id=request.request_id or "",
        parameters=request.parameters,
        priority=request.priority,
        timeout=request.timeout,
        correlation_id=0 if request.correlation_id is None else request.correlation_id,
        sequence_start=bool(flags & RequestFlag.SEQUENCE_START),
        sequence_end=bool(flags & RequestFlag.SEQUENCE_END),
    )


def _tensor(name: str, value: Any) -> wire.Tensor:
    tensor = Tensor.from_object(value)
    shape = [int(size) for size in tensor.shape]
    return wire.Tensor(name, tensor.data_type.value, shape, tensor.to_memory())


@dataclass
class InferenceResponse:
    model: Any
    request_id: str | None = None
    parameters: dict[str, str | int | bool] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    error: TritonError | None = None
    classification_label: str | None = None
    final: bool = False


class _Reading:
    """The responses to one request: the common part of threads' and coroutines' iterators."""

    def __init__(
        self, asked: AskedModel, responses: Any, request: InferenceRequest, is_raising: bool
    ) -> None:
        self._asked = asked
        self._responses = responses
        self._request = request
        self._is_raising = is_raising
        self._is_complete = False
        self._is_cancelled = False

    def _response(self, found: Answer | None) -> InferenceResponse:
        """Return a response of the server as one of this API; None means the end."""
        if found is None:
            if self._is_cancelled:
                return self._failure(errors.Cancelled("request was cancelled"))
            return InferenceResponse(self._model(), self._request.request_id, final=True)
        response = InferenceResponse(
            self._model(found.model, found.version),
            found.request_id,
            dict(found.parameters),
            {name: self._output(name, array) for name, array in found.outputs.items()},
            final=found.final,
        )
        if found.error is not None:
            self._blame(response, found.error)
        return response

    def _failure(self, error: ZmqTritonError) -> InferenceResponse:
        response = InferenceResponse(self._model(), self._request.request_id, final=True)
        self._blame(response, error)
        return response

    def _blame(self, response: InferenceResponse, error: ZmqTritonError) -> None:
        response.error = translate(error)
        response.error.args += (response,)

    def _model(self, name: str = "", version: int = 0) -> Any:
        """Return the model that has answered."""
        model = copy.copy(self._request.model)
        model.name, model.version = name or model.name, version or model.version
        return model

    def _output(self, name: str, array: Any) -> Tensor:
        tensor = Tensor.from_object(array)
        if tensor.data_type is DataType.UINT16:
            tensor.data_type = self._datatype_without_numpy(name) or tensor.data_type
        tensor.shape = cast("Sequence[int]", np.array(array.shape, np.int64))
        if (place := self._request.output_memory_type) is not None:
            try:
                return tensor.to_device(place)
            except (InvalidArgumentError, UnsupportedError) as error:
                raise InvalidArgumentError(f"Memory type {place} not supported: {error}") from error
        return tensor

    def _datatype_without_numpy(self, name: str) -> DataType | None:
        """Return the configured datatype of an output if numpy has only its bits."""
        outputs = self._asked.config().get("output", ())
        numbers = [
            datatypes.BY_CONFIG_NAME[o["data_type"]].number for o in outputs if o["name"] == name
        ]
        return next((DataType(n) for n in numbers if not datatypes.BY_NUMBER[n].numpy_name), None)

    def _deliver(self, response: InferenceResponse) -> InferenceResponse:
        """Return the response, or with `raise_on_error` raise its error."""
        self._is_complete = response.final
        if response.error is not None and self._is_raising:
            raise response.error
        return response


class ResponseIterator(_Reading):
    """The responses to one request, for a thread."""

    def __init__(
        self, asked: AskedModel, responses: Any, request: InferenceRequest, is_raising: bool
    ) -> None:
        super().__init__(asked, responses, request, is_raising)
        self._own_queue: queue.SimpleQueue[Any] | None = None
        if request.response_queue is not None:
            self._own_queue = queue.SimpleQueue()
            threading.Thread(
                target=self._fill, args=(self._own_queue, request.response_queue), daemon=True
            ).start()

    def __iter__(self) -> ResponseIterator:
        return self

    def __next__(self) -> InferenceResponse:
        if self._is_complete:
            raise StopIteration
        return self._deliver(self._next() if self._own_queue is None else self._take())

    def cancel(self) -> None:
        """Cancel the request, if it is not answered."""
        self._is_cancelled = True
        self._responses.close()

    def _next(self) -> InferenceResponse:
        try:
            return self._response(next(self._responses, None))
        except ZmqTritonError as error:
            return self._failure(error)

    def _take(self) -> InferenceResponse:
        assert self._own_queue is not None
        response = self._own_queue.get()
        if isinstance(response, InferenceResponse):
            return response
        self._is_complete = True
        raise response

    def _fill(self, *queues: Any) -> None:
        is_final = False
        while not is_final:
            try:
                response = self._next()
            except InvalidArgumentError as error:  # output_memory_type
                queues[0].put(error)
                return
            is_final = response.final
            for each in queues:
                each.put(response)


class AsyncResponseIterator(_Reading):
    """The responses to one request, for a coroutine."""

    def __init__(
        self, asked: AskedModel, responses: Any, request: InferenceRequest, is_raising: bool
    ) -> None:
        super().__init__(asked, responses, request, is_raising)
        self._own_queue: asyncio.Queue[Any] | None = None
        if request.response_queue is not None:
            self._own_queue = asyncio.Queue()
            self._filling = asyncio.get_running_loop().create_task(
                self._fill(self._own_queue, request.response_queue)
            )

    def __aiter__(self) -> AsyncResponseIterator:
        return self

    async def __anext__(self) -> InferenceResponse:
        if self._is_complete:
            raise StopAsyncIteration
        if self._own_queue is None:
            return self._deliver(await self._next())
        response = await self._own_queue.get()
        if isinstance(response, InferenceResponse):
            return self._deliver(response)
        self._is_complete = True
        raise response

    def cancel(self) -> None:
        """Cancel the request, if it is not answered."""
        self._is_cancelled = True
        self._responses.close()

    async def _next(self) -> InferenceResponse:
        try:
            return self._response(await anext(self._responses, None))
        except ZmqTritonError as error:
            return self._failure(error)

    async def _fill(self, *queues: Any) -> None:
        is_final = False
        while not is_final:
            try:
                response = await self._next()
            except InvalidArgumentError as error:  # output_memory_type
                await queues[0].put(error)
                return
            is_final = response.final
            for each in queues:
                await each.put(response)
