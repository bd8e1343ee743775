"""Executes requests for a framework: joined into batches, answered one by one.

Requests that differ only in their batch sizes form one batch. If a batch fails, all of its requests
get the error.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Tuple

import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_extras.backends.signature import Signature

#: Executes a model: takes arrays by input name and the requested outputs; returns arrays by output
#: name.
Run = Callable[[Dict[str, Any], "list[str]"], Dict[str, Any]]


def _read(tensor: Any) -> Any:
    return tensor.as_numpy()


class Arrays(NamedTuple):
    """Functions for the arrays of a framework that does not use numpy's."""

    #: Returns the array of a Tensor.
    read: Callable[[Any], Any] = _read
    #: Joins a list of arrays along their first axis.
    join: Callable[[List[Any]], Any] = np.concatenate


class Batch:
    """Requests that are executed together, by their places in the argument of execute()."""

    def __init__(self, join: Callable[[list[Any]], Any], outputs: Iterable[str]) -> None:
        self.places: List[int] = []
        self.outputs = set(outputs)
        self._inputs: List[Dict[str, Any]] = []
        self._join = join

    def add(self, place: int, inputs: dict[str, Any], outputs: set[str]) -> None:
        self.places.append(place)
        self.outputs |= outputs
        self._inputs.append(inputs)

    @property
    def inputs(self) -> dict[str, Any]:
        """The joined inputs; the inputs of a single request are not copied."""
        if len(self._inputs) == 1:
            return self._inputs[0]
        return {name: self._join([each[name] for each in self._inputs]) for name in self._inputs[0]}

    def split(self, outputs: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Return each request's part of the outputs, without copies. Raises ValueError."""
        if len(self._inputs) == 1:
            yield outputs
            return
        sizes = [_rows(each) for each in self._inputs]
        total = sum(sizes)
        for name, array in outputs.items():
            rows = array.shape[0] if array.ndim else 0
            if rows < total:
                raise ValueError(
                    f"failed to split the output tensor '{name}' in responses: expected batch "
                    f"size of atleast {total} in model output, got {rows}"
                )
        start = 0
        for size in sizes:
            yield {name: array[start : start + size] for name, array in outputs.items()}
            start += size


def execute(
    requests: list[Any],
    run: Run,
    signature: Signature,
    arrays: Arrays = Arrays(),  # noqa: B008 - it never changes
) -> list[Any]:
    """Return a response for each request, with the next state of its sequence if it has one."""
    responses: List[Any] = [None] * len(requests)
    groups: Dict[Any, Batch] = {}
    for place, request in enumerate(requests):
        try:
            inputs = {tensor.name(): arrays.read(tensor) for tensor in request.inputs()}
        except Exception as error:  # noqa: BLE001 - the requester is told
            responses[place] = failure(error)
            continue
        key = _key(inputs) if signature.has_batches and len(requests) > 1 else place
        if key not in groups:
            groups[key] = Batch(arrays.join, signature.states)
        groups[key].add(place, inputs, set(request.requested_output_names()))
    for batch in groups.values():
        try:
            names = [name for name in signature.outputs if name in batch.outputs]
            parts = [response(part) for part in batch.split(run(batch.inputs, names))]
        except Exception as error:  # noqa: BLE001 - whatever a framework raises is the answer
            parts = [failure(error)] * len(batch.places)
        for place, part in zip(batch.places, parts):
            responses[place] = part
    return responses


def response(outputs: dict[str, Any]) -> Any:
    return pb_utils.InferenceResponse([_tensor(name, a) for name, a in outputs.items()])


def _tensor(name: str, array: Any) -> Any:
    if isinstance(array, np.ndarray):
        return pb_utils.Tensor(name, array)
    return pb_utils.Tensor.from_dlpack(name, array)


def failure(error: BaseException) -> Any:
    """Return the response of a request that failed with this error."""
    text = str(error).strip() or type(error).__name__
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(text))


def _key(inputs: dict[str, Any]) -> Tuple[Any, ...]:
    """Return the key that all requests of one batch share."""
    return tuple(sorted((name, a.dtype, tuple(a.shape[1:])) for name, a in inputs.items()))


def _rows(inputs: dict[str, Any]) -> int:
    return next((int(array.shape[0]) for array in inputs.values()), 1)


def to_strings(array: Any, name: str) -> Any:
    """Return an array of bytes as one of str. Raises ValueError if it is not UTF-8."""
    texts = np.empty(array.size, dtype=np.object_)
    try:
        texts[:] = [item.decode() if isinstance(item, bytes) else str(item) for item in array.flat]
    except UnicodeDecodeError as error:
        raise ValueError(
            f"input '{name}' has a string that is not UTF-8, encode it: {error}"
        ) from None
    return texts.reshape(array.shape)
