"""Requests as calls of a function, and what it returns as their responses.

Without batches each request is a call. With them the rows of all requests are its entries; those
with equal single values share a call. What is wrong with a request, or with an entry that the
function names, fails that request alone.
"""

from __future__ import annotations

import os
import traceback
from typing import Any, Coroutine, Dict, Iterable, List, NamedTuple, Sequence, Tuple

import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_extras.functions.backend.api import Failed, Function, Refused
from zmqtriton_extras.functions.backend.kinds import (
    ERROR,
    MismatchError,
    Place,
    RaggedError,
    array_of_one,
    raise_all,
)
from zmqtriton_extras.functions.backend.media import Media
from zmqtriton_extras.functions.backend.signature import RAGGED, Parameter, Signature
from zmqtriton_floor.sdk import described, documents

Values = Dict[str, Any]
#: The files of this package.
_HERE = os.path.join(os.path.dirname(__file__), "")
_FAILURES = (Failed, Refused)
#: Exceptions of a function that a damaged picture or sound can cause.
_DAMAGES = (EOFError, MismatchError, OSError, SyntaxError, ValueError)
#: Triton's nearest codes by status; other statuses have INVALID_ARG or INTERNAL.
_CODES = {
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    499: "CANCELLED",
    501: "UNSUPPORTED",
    503: "UNAVAILABLE",
}


def arguments(signature: Signature, request: Any) -> Values:
    """Return the arguments of the call that a request is. Raises MismatchError."""
    tensors = {tensor.name(): tensor for tensor in request.inputs()}
    values: Values = {}
    errors: List[MismatchError] = []
    wrong = _wrong(request, errors) if signature.is_checked else ()
    for each in signature.parameters:
        if each.name in wrong:
            continue
        tensor, kind = tensors.get(each.name), each.kind
        if each.ragged is not None and each.name + RAGGED in tensors:
            tensor, kind = tensors[each.name + RAGGED], each.ragged
        if tensor is not None:
            array = _view(tensor) if kind.takes_view else tensor.as_numpy()
            if kind.is_as_it_is:
                values[each.name] = array
                continue
            try:  # Place costs more, for each value
                values[each.name] = (
                    _decode(each, kind, array, request) if kind.has_names else kind.decode(array)
                )
            except MismatchError as error:
                with Place(each.name, errors):
                    raise error
        elif not each.is_optional:
            errors.append(_missing(each))
        elif not each.has_default:
            values[each.name] = None
    if errors:  # a call costs more, in each request
        raise_all(errors)
    return values


def _wrong(request: Any, errors: List[MismatchError]) -> Dict[str, Any]:
    """Add what the server has found wrong with arguments, and return it by argument."""
    text = request.parameters()
    rows = documents.parse(text.encode()) if ERROR in text else {}
    wrong = {n[: -len(ERROR)]: str(rows[n]).split("\n") for n in rows if n.endswith(ERROR)}
    errors += [MismatchError(line) for lines in wrong.values() for line in lines]
    return wrong


def _missing(parameter: Parameter) -> MismatchError:
    return MismatchError(f"expected {parameter.kind.expected}, got nothing", parameter.name)


def _view(tensor: Any) -> Any:
    """Return the array of a file's tensor; a large file stays in shared memory."""
    view = getattr(tensor, "_data", None)  # Triton has no such attribute
    if type(view) is not memoryview or tensor.shape() != [1]:
        return tensor.as_numpy()
    return array_of_one(view[4:])  # the length is before the data


def _decode(parameter: Parameter, kind: Any, array: Any, request: Any) -> Any:
    """Return a value; a file knows what the client has said of it."""
    if kind.has_names:
        said = documents.parse(request.parameters().encode())
        return kind.decode(array, parameter.name, said)
    return kind.decode(array)


def response(signature: Signature, answer: Any) -> Any:
    """Return the response with what a call has returned, or yielded. Raises TypeError."""
    if isinstance(answer, _FAILURES):
        raise answer
    values = signature.values(answer)
    tensors = []
    for each in signature.outputs:
        value = values.get(each.name)
        if value is not None or not each.is_nullable:
            try:
                tensors.append(pb_utils.Tensor(each.name, _encode(signature, each, value)))
            except RaggedError:
                array = each.ragged.encode(each.kind.to_json(value))
                tensors.append(pb_utils.Tensor(each.name + RAGGED, array))
    return pb_utils.InferenceResponse(tensors)


def _encode(signature: Signature, output: Parameter, value: Any) -> Any:
    try:
        return output.kind.encode(value)
    except MismatchError as error:
        if isinstance(error, RaggedError) and output.ragged is not None:
            raise
        error.place.insert(0, f"output '{output.name}'")
        pb_utils.Logger.log_error(f"the function at {signature.place} has returned a wrong value")
        raise TypeError(str(error)) from None


def blamed(error: BaseException, values: Values) -> BaseException:
    """Return the error of a damaged picture or sound among arguments if it can be the cause."""
    errors: List[MismatchError] = []
    for name, value in values.items() if isinstance(error, _DAMAGES) else ():
        for each in value if isinstance(value, list) else [value]:
            with Place(name, errors):
                if isinstance(each, Media):
                    each.check()
    return errors[0] if errors else error


def failure(error: BaseException) -> Any:
    """Return the response of a request that failed so."""
    if isinstance(error, (MismatchError, Refused)):
        return _refusal(str(error), getattr(error, "status", 0))
    if isinstance(error, Failed):
        return _error(error.text)
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_HERE):
        frames = frames.tb_next  # those of the function come after
    trace = "".join(traceback.format_exception(type(error), error, frames))
    pb_utils.Logger.log_error(f"the function has failed: {trace}")
    return _error(f"{type(error).__name__}: {error}")


def _refusal(text: str, status: int) -> Any:
    name = _CODES.get(status, "INVALID_ARG" if status < 500 else "INTERNAL")
    code = getattr(pb_utils.TritonError, name, pb_utils.TritonError.INTERNAL)  # of an older Triton
    has_status = status and hasattr(pb_utils.TritonError, "number")  # Triton's has none
    error = pb_utils.TritonError(text, code, *[status][: bool(has_status)])
    return pb_utils.InferenceResponse(error=error)


def _error(text: str) -> Any:
    error = pb_utils.TritonError(text, pb_utils.TritonError.INTERNAL)
    return pb_utils.InferenceResponse(error=error)


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
    #: Values of the parameters with entries, in the order of the signature.
    values: List[Any]


class _Call(NamedTuple):
    """A call for entries with equal single values."""

    single: Values
    entries: List[_Entry]


class Batch:
    """The requests of one execute(), and the calls that answer them."""

    def __init__(self, signature: Signature, requests: List[Any]) -> None:
        self._signature = signature
        self._lists = [each for each in signature.parameters if each.has_entries]
        self._singles = [each for each in signature.parameters if not each.has_entries]
        self._needed = [each for each in signature.parameters if not each.is_optional]
        self._names = {each.name for each in self._needed}
        self._shaped = [each.name for each in self._lists if each.kind.is_row]
        #: True if the arrays of a request with one row are its entry.
        self._are_entries = all(each.kind.is_row and each.kind.is_as_it_is for each in self._lists)
        self._failures: Dict[int, BaseException] = {}
        #: The arrays of each request's rows, by row.
        self._rows: List[Dict[int, Sequence[Any]]] = [{} for _ in requests]
        self._calls: Dict[Any, _Call] = {}
        for place, request in enumerate(requests):
            try:
                self._add(place, request)
            except MismatchError as error:
                self._failures[place] = error

    def _add(self, place: int, request: Any) -> None:
        arrays = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        if not self._names <= arrays.keys():
            raise_all([_missing(each) for each in self._needed if each.name not in arrays])
        lists = [arrays[each.name] for each in self._lists]
        shapes = [arrays[name].shape[1:] for name in self._shaped]
        if self._are_entries and not self._singles and len(lists[0]) == 1:
            self._call(tuple(shapes), (), request, []).append(_Entry(place, 0, lists))
            return
        singles = [(each, arrays[each.name]) for each in self._singles if each.name in arrays]
        files = [request.parameters() for each, _ in singles if each.kind.is_file]
        for row in range(len(lists[0])):
            errors: List[MismatchError] = []
            wrong = _wrong(request, errors) if self._signature.is_checked else ()
            values: List[Any] = []
            for each, array in zip(self._lists, lists):
                with Place(each.name, errors):
                    values.append(None if each.name in wrong else _entry(each, array, row, request))
            key = (*shapes, *files, *[(each.name, _key(array[row])) for each, array in singles])
            single = ((each, array[row]) for each, array in singles if each.name not in wrong)
            entries = self._call(key, single, request, errors)
            entries.append(_Entry(place, row, values))

    def _call(
        self,
        key: Any,
        singles: Iterable[Tuple[Parameter, Any]],
        request: Any,
        errors: List[MismatchError],
    ) -> List[_Entry]:
        """Return the entries of the call for some single values. Raises the errors."""
        call = self._calls.get(key)
        if call is None:
            call = _Call({each.name: None for each in self._singles if not each.has_default}, [])
            for each, array in singles:
                with Place(each.name, errors):
                    call.single[each.name] = _decode(each, each.kind, array, request)
        if errors:
            raise_all(errors)
        return self._calls.setdefault(key, call).entries

    async def run(self, function: Function) -> List[Any]:
        """Return the responses, of calls that overlap if the function is a coroutine's."""
        calls = [self._finish(call, function) for call in self._calls.values()]
        await each_of(calls, overlap=self._signature.is_async)
        return [self._response(place) for place in range(len(self._rows))]

    async def _finish(self, call: _Call, function: Function) -> None:
        """Make a call, and again without the requests that it fails by name."""
        entries = self._unfailed(call.entries)
        while entries:
            try:
                answer = function(**call.single, **self._joined(entries))
                answer = await answer if self._signature.is_async else answer
                self._take(entries, self._signature.values(answer))
                return
            except Exception as error:  # noqa: BLE001 - requesters are told what it raises
                named = entries
                if isinstance(error, Failed) and 0 <= error.entry < len(entries):
                    named = [entries[error.entry]]
                failures = {each.request: self._blamed(error, call, each) for each in named}
                damages = {n: each for n, each in failures.items() if each is not error}
                self._failures.update(damages or failures)
                entries = self._unfailed(entries)

    def _blamed(self, error: BaseException, call: _Call, entry: _Entry) -> BaseException:
        values = {each.name: value for each, value in zip(self._lists, entry.values)}
        return blamed(error, {**call.single, **values})

    def _unfailed(self, entries: List[_Entry]) -> List[_Entry]:
        if not self._failures:
            return entries
        return [entry for entry in entries if entry.request not in self._failures]

    def _joined(self, entries: List[_Entry]) -> Values:
        columns = zip(*(entry.values for entry in entries))
        return {
            each.name: _rows(column) if each.kind.is_row else list(column)
            for each, column in zip(self._lists, columns)
        }

    def _take(self, entries: List[_Entry], answer: Values) -> None:
        count, outputs = len(entries), self._signature.outputs
        columns = [_column(self._signature, each, answer, count) for each in outputs]
        for entry, arrays in zip(entries, zip(*columns)):
            failed = [each for each in arrays if isinstance(each, _FAILURES)]
            if failed:
                self._failures[entry.request] = failed[0]
            else:
                self._rows[entry.request][entry.row] = arrays

    def _response(self, place: int) -> Any:
        if place in self._failures:
            return failure(self._failures[place])
        rows = self._rows[place]
        columns = zip(*[rows[row] for row in sorted(rows)])
        try:
            tensors = [
                pb_utils.Tensor(each.name, _rows(column))
                for each, column in zip(self._signature.outputs, columns)
            ]
        except ValueError as error:  # arrays of different shapes
            return failure(error)
        return pb_utils.InferenceResponse(tensors)


def _entry(parameter: Parameter, array: Any, row: int, request: Any) -> Any:
    """Return the value of an entry; one of an array of rows keeps the dimension of the batch."""
    if not parameter.kind.is_row:
        return _decode(parameter, parameter.kind, array[row], request)
    return array[row] if parameter.kind.is_number else array[row : row + 1]


def _column(signature: Signature, output: Parameter, answer: Values, count: int) -> List[Any]:
    """Return the rows of an output, or the failure in the place of one. Raises TypeError."""
    column = answer.get(output.name)
    size = len(column) if isinstance(column, (list, tuple, np.ndarray)) else -1
    if column is None or size != count:
        what = f"{size} entries" if size >= 0 else described(column)
        raise TypeError(f"output '{output.name}': expected {count} entries, got {what}")
    if output.kind.is_row and isinstance(column, np.ndarray) and column.dtype != np.object_:
        first = _encode(signature, output, column[0])  # the other entries have its type and shape
        rows = column.astype(first.dtype, copy=False).reshape(count, 1, *first.shape)
        return list(rows)
    return [
        each if isinstance(each, _FAILURES) else _encode(signature, output, each)[np.newaxis]
        for each in column
    ]


def _rows(arrays: Sequence[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _key(array: Any) -> Any:
    """Return a key that equal values share, bit by bit."""
    if array.dtype == np.object_:
        return (array.shape, *array.flat)
    return array.shape, array.tobytes()
