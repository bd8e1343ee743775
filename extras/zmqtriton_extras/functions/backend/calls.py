"""Turns requests into calls of a function, and its return values into responses.

Without batches each request is one call. In a batch each row of a request is an entry. Entries
share a call if their other arguments are equal. A wrong request, or an entry that the function
rejects, fails only that request.
"""

from __future__ import annotations

import inspect
import math
import os
import traceback
from typing import Any, Coroutine, Dict, List, NamedTuple, Optional, Sequence

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
_NOTHING: Values = {}
#: Path of this package, whose frames are left out of tracebacks.
_HERE = os.path.join(os.path.dirname(__file__), "")
_FAILURES = (Failed, Refused)
#: Exceptions that a damaged image or sound can cause in a function.
_DAMAGES = (EOFError, MismatchError, OSError, SyntaxError, ValueError)
#: Triton's codes by HTTP status; other statuses have INVALID_ARG or INTERNAL.
_CODES = {
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    499: "CANCELLED",
    501: "UNSUPPORTED",
    503: "UNAVAILABLE",
}


def tensors_of(request: Any) -> Dict[str, Any]:
    return {tensor.name(): tensor for tensor in request.inputs()}


def arguments(
    signature: Signature,
    request: Any,
    tensors: Dict[str, Any],
    row: Optional[int] = None,
    shared: Values = _NOTHING,
) -> Values:
    """Return the function's arguments for a request, or for one of its rows in a batch.

    Arguments that the request shares with others are not read again. Raises MismatchError.
    """
    values = {**shared}
    errors: List[MismatchError] = []
    wrong = _wrong(request, errors) if signature.is_checked else ()
    for each in signature.parameters:
        name, kind = each.name, each.kind  # type: str, Any
        if name in wrong or name in shared:
            continue
        if each.ragged is not None and name + RAGGED in tensors:
            tensor, kind = tensors[name + RAGGED], each.ragged
        else:
            tensor = tensors.get(name)
        if tensor is None:
            if not each.is_optional:
                errors.append(MismatchError(f"expected {kind.expected}, got nothing", name))
            elif not each.has_default:
                values[name] = None
            continue
        is_whole = row is None and not kind.takes_view
        array = tensor.as_numpy() if is_whole else _array(tensor, kind, row)
        if kind.is_as_it_is:
            values[name] = array
            continue
        try:  # Place costs more, for each value
            said = [name, _parameters(request)] if kind.has_names else []  # of a file
            values[name] = kind.decode(array, *said)
        except MismatchError as error:
            with Place(name, errors):
                raise error
    if errors:  # a call costs more, in each request
        raise_all(errors)
    return values


def _wrong(request: Any, errors: List[MismatchError]) -> Dict[str, Any]:
    """Add the errors that the server has found in arguments, and return them by argument."""
    rows = _parameters(request) if ERROR in request.parameters() else {}
    wrong = {n[: -len(ERROR)]: str(rows[n]).split("\n") for n in rows if n.endswith(ERROR)}
    errors += [MismatchError(line) for lines in wrong.values() for line in lines]
    return wrong


def _parameters(request: Any) -> Any:
    return documents.parse(request.parameters().encode())


def _array(tensor: Any, kind: Any, row: Optional[int]) -> Any:
    """Return the array of a tensor, or of one row of it.

    A large file is not copied: it stays in shared memory.
    """
    view = getattr(tensor, "_data", None)  # Triton has no such attribute
    if type(view) is memoryview and kind.takes_view and tensor.shape() == [1]:
        return array_of_one(view[4:])  # the length is before the data
    array = tensor.as_numpy()
    if row is None:
        return array
    # an entry of an array keeps the dimension of the batch
    return array[row : row + 1] if kind.is_row and not kind.is_number else array[row]


def response(signature: Signature, answer: Any) -> Any:
    """Return the response for a value of the function. Raises TypeError for a wrong one."""
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
    """Return the error of a damaged image or sound among the arguments, or else the given error.

    The function may have failed only because of the damaged file, which is the client's fault.
    """
    errors: List[MismatchError] = []
    for name, value in values.items() if isinstance(error, _DAMAGES) else ():
        for each in value if isinstance(value, list) else [value]:
            with Place(name, errors):
                if isinstance(each, Media):
                    each.check()
    return errors[0] if errors else error


def failure(error: BaseException) -> Any:
    """Return the response to a request that failed with this exception."""
    if isinstance(error, (MismatchError, Refused)):
        status = getattr(error, "status", 0)
        return _error(str(error), _CODES.get(status, "INVALID_ARG" if status < 500 else ""), status)
    if isinstance(error, Failed):
        return _error(error.text)
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_HERE):
        frames = frames.tb_next  # those of the function come after
    trace = "".join(traceback.format_exception(type(error), error, frames))
    pb_utils.Logger.log_error(f"the function has failed: {trace}")
    return _error(f"{type(error).__name__}: {error}")


def _error(text: str, name: str = "", status: int = 0) -> Any:
    """Return a response with an error, by the name of Triton's code; unknown names are INTERNAL."""
    code = getattr(pb_utils.TritonError, name, pb_utils.TritonError.INTERNAL)  # of an older Triton
    has_status = status and hasattr(pb_utils.TritonError, "number")  # Triton's has none
    error = pb_utils.TritonError(text, code, *[status][: bool(has_status)])
    return pb_utils.InferenceResponse(error=error)


async def each_of(coroutines: Sequence[Coroutine[Any, Any, Any]], *, overlap: bool) -> List[Any]:
    """Return the results of coroutines.

    With `overlap` they run concurrently. Without it they run one by one, and need no event loop.
    """
    if not overlap or len(coroutines) < 2:
        return [await each for each in coroutines]
    import asyncio  # most functions do without it

    return list(await asyncio.gather(*coroutines))


# ---------------------------------------------------------------- batches


class _Entry(NamedTuple):
    #: Index of the request in the batch, and index of the row in the request.
    request: int
    row: int
    #: The arguments of this entry.
    values: Values


class Batch:
    """The requests of one execute() in batch mode, grouped into calls of the function."""

    def __init__(self, signature: Signature, requests: List[Any]) -> None:
        self._signature = signature
        self._lists = [each for each in signature.parameters if each.has_entries]
        self._singles = [each for each in signature.parameters if not each.has_entries]
        self._has_files = any(each.kind.is_file for each in self._singles)
        self._failures: Dict[int, BaseException] = {}
        #: The output arrays of each request, by row.
        self._rows: List[Dict[int, Sequence[Any]]] = [{} for _ in requests]
        #: The entries of each call, by their key.
        self._calls: Dict[Any, List[_Entry]] = {}
        for place, request in enumerate(requests):
            try:
                self._add(place, request)
            except MismatchError as error:
                self._failures[place] = error

    def _add(self, place: int, request: Any) -> None:
        tensors = tensors_of(request)
        first = tensors.get(self._lists[0].name)
        for row in range(1 if first is None else first.shape()[0]):
            key = self._key(request, tensors, row)
            first_values = self._calls[key][0].values if key in self._calls else _NOTHING
            shared = {
                each.name: first_values[each.name]
                for each in self._singles
                if each.name in first_values
            }
            values = arguments(self._signature, request, tensors, row, shared)
            self._calls.setdefault(key, []).append(_Entry(place, row, values))

    def _key(self, request: Any, tensors: Dict[str, Any], row: int) -> Any:
        """Return a key that is equal for entries that can share a call."""
        key: List[Any] = [request.parameters()] if self._has_files else []
        for each in self._signature.parameters:
            array = tensors[each.name].as_numpy() if each.name in tensors else None
            if array is not None and each.kind.is_row:
                key.append(array.shape[1:])
            elif array is not None and not each.has_entries:
                data = array[row].flat if array.dtype == np.object_ else [array[row].tobytes()]
                key += [each.name, array.shape[1:], *data]
        return tuple(key)

    async def run(self, function: Function) -> List[Any]:
        """Make all calls, and return a response for each request."""
        calls = [part for call in self._calls.values() for part in self._within_budget(call)]
        finished = [self._finish(call, function) for call in calls]
        await each_of(finished, overlap=self._signature.is_async)
        return [self._response(place) for place in range(len(self._rows))]

    def _within_budget(self, entries: List[_Entry]) -> List[List[_Entry]]:
        """Divide the entries of a call into calls whose costs are within the budget.

        An entry above the budget is alone.
        """
        settings = self._signature.settings
        if not callable(settings.cost):
            return [entries]
        parts: List[List[_Entry]] = []
        names, spent = inspect.signature(settings.cost).parameters, math.inf
        defaults = self._signature.defaults
        for entry in entries:
            try:
                values = {**defaults, **entry.values}
                cost = float(settings.cost(**{n: values[n] for n in names if n in values}))
                if not cost >= 0:
                    raise Refused(f"its cost is {cost:g}, which must be a number from 0 on")
            except Exception as error:  # noqa: BLE001 - the requester is told of it
                self._failures[entry.request] = error
                continue
            spent += cost
            if spent > settings.budget:
                parts.append([])
                spent = cost
            parts[-1].append(entry)
        return parts

    async def _finish(self, entries: List[_Entry], function: Function) -> None:
        """Call the function for these entries, and again without the entries that it rejects."""
        entries = self._unfailed(entries)
        while entries:
            try:
                answer = function(**self._joined(entries))
                answer = await answer if self._signature.is_async else answer
                self._take(entries, self._signature.values(answer))
                return
            except Exception as error:  # noqa: BLE001 - requesters are told what it raises
                named = entries
                if isinstance(error, Failed) and 0 <= error.entry < len(entries):
                    named = [entries[error.entry]]
                failures = {each.request: blamed(error, each.values) for each in named}
                damages = {n: each for n, each in failures.items() if each is not error}
                self._failures.update(damages or failures)
                entries = self._unfailed(entries)

    def _unfailed(self, entries: List[_Entry]) -> List[_Entry]:
        if not self._failures:
            return entries
        return [entry for entry in entries if entry.request not in self._failures]

    def _joined(self, entries: List[_Entry]) -> Values:
        """Return the arguments of one call for all entries."""
        values = entries[0].values.copy()
        for each in self._lists:
            column = [entry.values[each.name] for entry in entries]
            values[each.name] = _rows(column) if each.kind.is_row else column
        return values

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


def _column(signature: Signature, output: Parameter, answer: Values, count: int) -> List[Any]:
    """Return the array of each entry of an output; a Failed or Refused entry stays as it is.

    Raises TypeError for a wrong number or type of entries.
    """
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
