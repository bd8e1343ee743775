"""Executes a request above max_batch_size in parts, for models with SPLIT_BATCHES.

The parts are executed one after the other by the model's own execute(), each in a batch by itself,
and their outputs are joined in order. Requests of clients and of other
models all come here with their tensors, so each of them can be divided.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any, Callable, Iterator, Sequence

import numpy as np

from zmqtriton_floor import wire
from zmqtriton_floor.datatypes import WITHOUT_NUMPY
from zmqtriton_stub.api.errors import CANCELLED, ErrorCode, TritonError, TritonModelException
from zmqtriton_stub.api.inference import InferenceRequest, InferenceResponse, no_response
from zmqtriton_stub.api.tensor import Tensor, received_tensor
from zmqtriton_stub.instance import StubInstance


def divide_large(execute: Callable[..., Any], instance: StubInstance) -> Callable[..., Any]:
    """Return a model's execute() that divides requests which are too large."""
    signature = instance.signature
    if signature is None or not signature.splits_batches:
        return execute
    limit = signature.max_batch_size

    def execute_parts(requests: list[InferenceRequest]) -> Any:
        request = requests[0]
        # the broker batches a request that is too large with no other
        if len(requests) > 1 or _rows(request) <= limit:
            return execute(requests)
        if inspect.iscoroutinefunction(execute):
            return _await_parts(execute, request, limit)
        joining = _Joining(request, limit)
        for part in joining.parts():
            joining.take(execute([part]))
        return [joining.response()]

    return execute_parts


async def _await_parts(
    execute: Callable[..., Any], request: InferenceRequest, limit: int
) -> list[InferenceResponse]:
    joining = _Joining(request, limit)
    for part in joining.parts():
        joining.take(await execute([part]))
    return [joining.response()]


def _rows(request: InferenceRequest) -> int:
    return request._inputs[0]._shape[0] if request._inputs and request._inputs[0]._shape else 0


class _NoSender:
    """The sender of a part: a part has no client of its own."""

    def send(self, response: Any = None, flags: int = 0) -> None:
        raise TritonModelException(
            "Unable to send response. The request is a part of one above max_batch_size "
            "(SPLIT_BATCHES), so execute() has to return its response."
        )

    def is_cancelled(self) -> bool:
        return False


class _Joining:
    """The parts of one request, and their responses so far."""

    def __init__(self, request: InferenceRequest, limit: int) -> None:
        self._request = request
        self._limit = limit
        self._responses: list[InferenceResponse] = []
        #: The rows of each part that was given out.
        self._sizes: list[int] = []

    def parts(self) -> Iterator[InferenceRequest]:
        """Yield the parts, until one fails or the client leaves."""
        rows = _rows(self._request)
        for begin in range(0, rows, self._limit):
            if self._responses and self._responses[-1].has_error():
                return
            if begin and self._request.is_cancelled():
                self._responses.append(
                    InferenceResponse(error=TritonError(CANCELLED, ErrorCode.CANCELLED))
                )
                return
            end = min(rows, begin + self._limit)
            self._sizes.append(end - begin)
            yield _part_of(self._request, begin, end)

    def take(self, returned: Any) -> None:
        """Take the result of execute() for a part. Raises unless it is exactly one response."""
        if not isinstance(returned, list) or len(returned) != 1:
            raise TritonModelException(
                "Expected a list with one InferenceResponse for a part of a request above "
                f"max_batch_size, found {'a list' if isinstance(returned, list) else 'type'} "
                f"{len(returned) if isinstance(returned, list) else type(returned)}."
            )
        if not isinstance(returned[0], InferenceResponse):
            raise no_response(returned[0])
        self._responses.append(returned[0])

    def response(self) -> InferenceResponse:
        """Return the response to the whole request: the joined outputs, or the first error."""
        responses = self._responses
        if responses[-1].has_error():
            return responses[-1]
        names = [tensor._name for tensor in responses[0]._output_tensors]
        by_name = [{one._name: one for one in each._output_tensors} for each in responses]
        if any(each.keys() != set(names) for each in by_name):
            raise TritonModelException(
                "The parts of a request above max_batch_size must have the same outputs: "
                f"{' and '.join(', '.join(sorted(each)) for each in by_name[:2])}."
            )
        outputs = [self._join(name, [each[name] for each in by_name]) for name in names]
        return InferenceResponse(
            outputs, parameters={k: v for each in responses for k, v in each._parameters.items()}
        )

    def _join(self, name: str, tensors: Sequence[Tensor]) -> Tensor:
        first = tensors[0]
        for tensor, rows in zip(tensors, self._sizes):
            shape = tensor._shape
            if not tensor.is_cpu() or tensor._datatype != first._datatype:
                raise TritonModelException(
                    f"The parts of output '{name}' cannot be joined: return them on the CPU, and "
                    "in one datatype."
                )
            if shape[:1] != [rows] or shape[1:] != first._shape[1:]:
                raise TritonModelException(
                    f"The parts of output '{name}' cannot be joined: one has the shape {shape}, "
                    f"which is not {[rows, *first._shape[1:]]}."
                )
        if first._datatype in WITHOUT_NUMPY:
            return _of_bits(
                name, first._datatype, np.concatenate([tensor._bits() for tensor in tensors])
            )
        arrays = [tensor.as_numpy() for tensor in tensors]
        if arrays[0].dtype.hasobject or arrays[0].dtype.kind in "SU":
            return Tensor(name, np.concatenate(arrays))
        joined = Tensor.empty(name, [sum(self._sizes), *first._shape[1:]], arrays[0].dtype)
        np.concatenate(arrays, out=joined.as_numpy())
        return joined


def _part_of(request: InferenceRequest, begin: int, end: int) -> InferenceRequest:
    """Return a copy of the request with only these rows of its inputs."""
    part = copy.copy(request)
    part._inputs = [_rows_of(tensor, begin, end) for tensor in request._inputs]
    part._sender = _NoSender()
    return part


def _rows_of(tensor: Tensor, begin: int, end: int) -> Tensor:
    if not tensor.is_cpu():
        raise TritonModelException(
            f"input '{tensor._name}' is on a GPU, where requests above max_batch_size are not "
            "divided. Send it from the CPU."
        )
    if tensor._datatype not in WITHOUT_NUMPY:
        return Tensor(tensor._name, tensor.as_numpy()[begin:end])
    return _of_bits(tensor._name, tensor._datatype, tensor._bits()[begin:end])


def _of_bits(name: str, datatype: int, bits: Any) -> Tensor:
    """Return a tensor of a datatype that numpy lacks, from its bits."""
    data = memoryview(bits.reshape(-1).view(np.uint8))
    return received_tensor(wire.Tensor(name, datatype, list(bits.shape), data))
