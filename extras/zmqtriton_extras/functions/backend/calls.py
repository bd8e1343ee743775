"""Requests as calls of a function, and what it returns as their responses.

Without batches each request is a call. With them the rows of all requests are its entries; those
with equal single values share a call. What is wrong with a request, or with an entry that the
function names, fails that request alone.
"""

from __future__ import annotations

import traceback
from typing import Any, Coroutine, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_extras.functions.backend.api import Failed, Function
from zmqtriton_extras.functions.backend.kinds import MismatchError, Place
from zmqtriton_extras.functions.backend.signature import Parameter, Signature

Values = Dict[str, Any]


def arguments(signature: Signature, request: Any) -> Values:
    """Return the arguments of the call that a request is. Raises MismatchError."""
    arrays = _arrays(signature, request)
    return {
        each.name: None if array is None else _decode(each, array)
        for each, array in zip(signature.parameters, arrays)
        if array is not None or not each.has_default
    }


def _arrays(signature: Signature, request: Any) -> List[Any]:
    """Return the array of each parameter, None without one. Raises MismatchError."""
    tensors = {tensor.name(): tensor for tensor in request.inputs()}
    for each in signature.parameters:
        if each.name not in tensors and not each.is_optional:
            raise MismatchError(f"expected {each.kind.expected}, got nothing", each.name)
    return [
        tensors[each.name].as_numpy() if each.name in tensors else None
        for each in signature.parameters
    ]


def _decode(parameter: Parameter, array: Any) -> Any:
    with Place(parameter.name):
        return parameter.kind.decode(array)


def response(signature: Signature, answer: Any) -> Any:
    """Return the response with what a call has returned, or yielded. Raises TypeError."""
    values = signature.values(answer)
    arrays = ((each, values.get(each.name)) for each in signature.outputs)
    return pb_utils.InferenceResponse(
        [
            pb_utils.Tensor(each.name, _encode(each, value))
            for each, value in arrays
            if value is not None or not each.is_nullable
        ]
    )


def _encode(output: Any, value: Any) -> Any:
    try:
        with Place(f"output '{output.name}'"):
            return output.kind.encode(value)
    except MismatchError as error:
        raise TypeError(str(error)) from None


def failure(error: BaseException) -> Any:
    """Return the response of a request that failed so."""
    if isinstance(error, MismatchError):
        return _error(str(error), pb_utils.TritonError.INVALID_ARG)
    if isinstance(error, Failed):
        return _error(error.text, pb_utils.TritonError.INTERNAL)
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    pb_utils.Logger.log_error(f"the function has failed: {trace}")
    return _error(f"{type(error).__name__}: {error}", pb_utils.TritonError.INTERNAL)


def _error(text: str, code: Any) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(text, code))


async def each_of(coroutines: Sequence[Coroutine[Any, Any, Any]], *, overlap: bool) -> List[Any]:
    """Return the results of coroutines; without overlap they need no event loop."""
    if not overlap or len(coroutines) < 2:
        return [await each for each in coroutines]
    import asyncio  # most functions do without it

    return list(await asyncio.gather(*coroutines))


# ---------------------------------------------------------------- batches


class _Entry(NamedTuple):
    #: The request's place in what execute() was given, and the row in it.
    request: int
    row: int
    values: Values


class Call:
    """A call for entries with equal single values; it is repeated without those that it fails."""

    def __init__(self, signature: Signature, single: Values) -> None:
        self.entries: List[_Entry] = []
        self._signature = signature
        self._single = single

    def arguments(self) -> Values:
        lists = {
            each.name: self._joined(each) for each in self._signature.parameters if each.has_entries
        }
        return {**self._single, **lists}

    def _joined(self, parameter: Parameter) -> Any:
        values = [entry.values[parameter.name] for entry in self.entries]
        if not parameter.kind.is_row:
            return values
        return values[0] if len(values) == 1 else np.concatenate(values)

    def results(self, answer: Any) -> Iterator[Tuple[_Entry, Values]]:
        """Return the arrays of each entry, or the Failed in its place. Raises TypeError."""
        columns = self._signature.values(answer)
        for each in self._signature.outputs:
            column = columns.get(each.name)
            size = len(column) if isinstance(column, (list, tuple, np.ndarray)) else -1
            if size != len(self.entries):
                what = f"{size} entries" if size >= 0 else repr(column)
                text = f"output '{each.name}': expected {len(self.entries)} entries, got {what}"
                raise TypeError(text)
        for place, entry in enumerate(self.entries):
            row = {each.name: columns[each.name][place] for each in self._signature.outputs}
            yield entry, row


class Batch:
    """The requests of one execute(), and the calls that answer them."""

    def __init__(self, signature: Signature, requests: List[Any]) -> None:
        self._signature = signature
        self._failures: Dict[int, BaseException] = {}
        #: The arrays of each request's rows, by row.
        self._rows: List[Dict[int, Values]] = [{} for _ in requests]
        calls: Dict[Any, Call] = {}
        for place, request in enumerate(requests):
            try:
                for key, single, entry in self._entries(place, _arrays(signature, request)):
                    if key not in calls:
                        calls[key] = Call(signature, self._decoded(single))
                    calls[key].entries.append(entry)
            except MismatchError as error:
                self._failures[place] = error
        self._calls = list(calls.values())

    def _entries(
        self, request: int, arrays: List[Any]
    ) -> Iterator[Tuple[Any, List[Tuple[Parameter, Any]], _Entry]]:
        pairs: List[Tuple[Parameter, Any]] = [*zip(self._signature.parameters, arrays)]
        rows = next(len(array) for each, array in pairs if each.has_entries)
        for row in range(rows):
            single, values, key = [], {}, []  # type: List[Any], Values, List[Any]
            for each, array in pairs:
                if each.has_entries and each.kind.is_row:
                    values[each.name] = _numbers(each, array[row : row + 1])
                    key.append(array.shape[1:])
                elif each.has_entries:
                    values[each.name] = _decode(each, array[row])
                else:
                    single.append((each, None if array is None else array[row]))
                    key.append(None if array is None else _key(array[row]))
            yield tuple(key), single, _Entry(request, row, values)

    def _decoded(self, single: List[Tuple[Parameter, Any]]) -> Values:
        return {
            each.name: None if array is None else _decode(each, array)
            for each, array in single
            if array is not None or not each.has_default
        }

    async def run(self, function: Function, *, overlap: bool) -> List[Any]:
        """Return the responses of a coroutine function's calls."""
        await each_of([self._finish(call, function) for call in self._calls], overlap=overlap)
        return [self._response(place) for place in range(len(self._rows))]

    async def _finish(self, call: Call, function: Function) -> None:
        is_done = False
        while not is_done and self._prune(call):
            try:
                self._take(call, await function(**call.arguments()))
                is_done = True
            except Exception as error:  # noqa: BLE001 - requesters are told what it raises
                is_done = self._fail(call, error)

    def _prune(self, call: Call) -> bool:
        """Leave out requests that have failed; return whether others are left."""
        call.entries = [entry for entry in call.entries if entry.request not in self._failures]
        return bool(call.entries)

    def _take(self, call: Call, answer: Any) -> None:
        for entry, row in call.results(answer):
            failed = [value for value in row.values() if isinstance(value, Failed)]
            if failed:
                self._failures[entry.request] = failed[0]
                continue
            self._rows[entry.request][entry.row] = {
                each.name: _encode(each, _as_entry(each, row[each.name]))
                for each in self._signature.outputs
            }

    def _fail(self, call: Call, error: BaseException) -> bool:
        """Fail the request of the entry that the error names, or all; return whether it was all."""
        if isinstance(error, Failed) and 0 <= error.entry < len(call.entries):
            self._failures[call.entries[error.entry].request] = error
            return False
        self._failures.update({entry.request: error for entry in call.entries})
        return True

    def _response(self, place: int) -> Any:
        if place in self._failures:
            return failure(self._failures[place])
        rows = [row for _, row in sorted(self._rows[place].items())]
        try:
            tensors = [
                pb_utils.Tensor(each.name, _joined([row[each.name] for row in rows]))
                for each in self._signature.outputs
            ]
        except ValueError as error:  # arrays of different shapes
            return failure(error)
        return pb_utils.InferenceResponse(tensors)


def _joined(arrays: List[Any]) -> Any:
    return np.stack(arrays) if len(arrays) != 1 else arrays[0][np.newaxis]


def _key(array: Any) -> Any:
    """Return a key that equal values share, bit by bit."""
    if array.dtype == np.object_:
        return (array.shape, *array.flat)
    return array.shape, array.tobytes()


def _numbers(parameter: Parameter, array: Any) -> Any:
    """Return entries as the function's hint has them: a number of each has no own dimension."""
    return array.reshape(-1) if parameter.kind.is_number else array


def _as_entry(output: Any, value: Any) -> Any:
    return np.reshape(value, [1]) if output.kind.is_number else value
