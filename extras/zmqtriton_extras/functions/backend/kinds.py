"""The kinds of values that hints name, each with its tensor: type, shape, both conversions.

A kind is also known by its JSON schema alone: so the server reads and writes plain JSON with the
code that the function's process has, and needs none of the function's own.
"""

from __future__ import annotations

import base64
import enum
import typing
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from zmqtriton_floor.sdk import clipped, described, documents, shown

_INT64 = np.iinfo(np.int64)
_ONE_LINE = {ord("\n"): " ", ord("'"): "\N{RIGHT SINGLE QUOTATION MARK}"}
#: Ends the name of a request parameter: what the server has found wrong with an argument.
ERROR = ".error"
#: Fields of a schema for what JSON's own words do not say.
DATATYPE, DIMS, CONTENT = "x-datatype", "x-dims", "contentMediaType"
#: Maximum number of errors in the answer to a request; the others are counted.
MAX_ERRORS = 20


class PlacedError(Exception):
    """Raised with the names of the place, from the outermost."""

    def __init__(self, text: str, *place: Any) -> None:
        super().__init__(text)
        self.place = [*map(str, place)]
        #: Further errors of the same request, each with a place of its own.
        self.more: List[PlacedError] = []

    def __str__(self) -> str:
        """Return a line for each error, with its place."""
        lines, left = self.lines(MAX_ERRORS), len(self.more) + 1 - MAX_ERRORS
        return clipped("\n".join(lines + [f"{left} more errors"][: max(left, 0)]))

    def lines(self, count: int) -> List[str]:
        """Return the lines of the first errors."""
        errors = [self, *self.more][:count]
        return [": ".join(filter(None, [".".join(each.place), each.args[0]])) for each in errors]


class MismatchError(PlacedError):
    """Raised for a value that is not what its hint says."""


class RaggedError(MismatchError):
    """Raised for rows of different lengths, which no tensor has."""


class HintError(PlacedError):
    """Raised for a hint that names no kind of value."""


def raise_all(errors: Sequence[PlacedError]) -> None:
    """Raise the first of some errors, which has the others; do nothing without any."""
    if errors:
        errors[0].more += [each for error in errors[1:] for each in (error, *error.more)]
        raise errors[0]


def named(name: Any) -> str:
    """Return a client's own name in quotes; logs leave quoted names out."""
    return f"'{shown(name).translate(_ONE_LINE)}'"


class Place:
    """Names the place of the hint or the value in errors that are raised within."""

    def __init__(self, name: Any, errors: Optional[List[MismatchError]] = None) -> None:
        """Set up to collect a MismatchError in a list, if there is one, in place of raising it."""
        self._name, self._errors = name, errors

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if not isinstance(error, PlacedError):
            return False
        for each in (error, *error.more):
            each.place.insert(0, str(self._name))
        if self._errors is None or not isinstance(error, MismatchError):
            return False
        self._errors.append(error)
        return True


def convert_all(rows: Iterable[Tuple[Any, Any]], convert: Callable[..., Any]) -> List[Any]:
    """Return the results for named values, each a tuple of arguments. Raises all errors."""
    errors: List[MismatchError] = []
    results = []
    for place, arguments in rows:
        with Place(place, errors):
            results.append(convert(*arguments))
    raise_all(errors)
    return results


class Kind:
    """The values of one hint."""

    #: TYPE_INT64 and the like.
    datatype = "TYPE_STRING"
    #: Type of its arrays.
    dtype: Any = np.object_
    #: Shape of the tensor of one value; -1 is any size.
    dims: List[int] = [1]  # noqa: RUF012 - nobody changes it
    #: The expected value, in errors.
    expected = ""
    #: True for the rows of an array with the entries of a batch.
    is_row = False
    #: True for the rows of an array of numbers: their tensors have a dimension, they have none.
    is_number = False
    #: True if an array is its own value.
    is_as_it_is = False
    #: True if the element of the tensor is the content of a file.
    is_file = False
    #: True if values are files that a client can name.
    has_names = False
    #: True if that may be a view of bytes.
    takes_view = False
    schema: Dict[str, Any] = {}  # noqa: RUF012 - likewise
    #: Checks values by the hint, which says more than the tensor; None if it does not.
    adapter: Any = None

    def blank(self) -> Any:
        """Return the array that stands for a wrong value; it takes no memory for its elements."""
        element = np.array(b"" if self.dtype == np.object_ else 0, self.dtype)
        return np.broadcast_to(element, [max(dim, 0) for dim in self.dims])

    def decode(self, array: Any) -> Any:
        """Return the value of an array. Raises MismatchError."""
        raise NotImplementedError

    def encode(self, value: Any) -> Any:
        """Return the array of a value. Raises MismatchError."""
        raise NotImplementedError

    def from_json(self, document: Any) -> Any:
        """Return the value that JSON has as this document. Raises MismatchError."""
        return document

    def to_json(self, value: Any) -> Any:
        """Return the document that JSON has for a value."""
        return value

    def mismatch(self, value: Any) -> MismatchError:
        return MismatchError(f"expected {self.expected}, got {described(value)}")


class _Element(NamedTuple):
    datatype: str
    dtype: Any
    #: The types of Python's values and of numpy's.
    types: Tuple[type, ...]
    json_type: str


_NUMBERS = (float, int, np.floating, np.integer)
ELEMENTS: Dict[type, _Element] = {
    bool: _Element("TYPE_BOOL", np.bool_, (bool, np.bool_), "boolean"),
    int: _Element("TYPE_INT64", np.int64, (int, np.integer), "integer"),
    float: _Element("TYPE_FP64", np.float64, _NUMBERS, "number"),
    str: _Element("TYPE_STRING", np.object_, (str,), "string"),
    bytes: _Element("TYPE_STRING", np.object_, (bytes,), "string"),
}
_LISTS = (list, tuple, np.ndarray)
BASE64 = {"contentEncoding": "base64"}


class Scalars(Kind):
    """Values of `int`, `float`, `bool`, `str` or `bytes`, or lists of lists of them."""

    def __init__(self, python: Any, depth: int = 0) -> None:
        element = ELEMENTS[python]
        self.python, self.depth = python, depth
        self.datatype = element.datatype
        self.dims = [-1] * depth or [1]
        self.expected = f"{'list of ' * depth}{python.__name__}"
        self.schema = {"type": element.json_type, **(BASE64 if python is bytes else {})}
        for _ in range(depth):
            self.schema = {"type": "array", "items": self.schema}
        self.is_file = python is bytes and not depth
        self.dtype, self._types = element.dtype, element.types

    def decode(self, array: Any) -> Any:
        if self.depth:
            value: Any = self._listed(array)
        else:
            value = self._text(array.item(0)) if self.dtype is np.object_ else array.item(0)
        return value if self.adapter is None else self.adapter.read(value)

    def _listed(self, array: Any) -> Any:
        """Return the nested lists of an array."""
        if not array.size:
            return array.tolist()
        flat, values = array.reshape(-1), []  # type: Any, List[Any]
        for at in range(0, array.size, documents.STEP):  # other threads run between them
            piece = flat[at : at + documents.STEP]
            values += map(self._text, piece) if self.dtype is np.object_ else piece.tolist()
        for size in reversed(array.shape[1:]):
            values = [values[at : at + size] for at in range(0, len(values), size)]
        return values

    def _text(self, item: Any) -> Any:
        item = as_bytes(item)
        if self.python is bytes:
            return item
        try:
            return item.decode()
        except UnicodeDecodeError:
            raise self.mismatch(item) from None

    def encode(self, value: Any) -> Any:
        if not self.depth:  # streams have thousands of these in a second
            array = np.empty(1, self.dtype)
            array[0] = self._element(value)
            return array
        return _nested(self, value, self.depth, lambda piece: [*map(self._element, piece)])

    def _element(self, value: Any) -> Any:
        element: Any = value
        is_bool = isinstance(value, (bool, np.bool_))
        if not isinstance(value, self._types) or is_bool is not (self.python is bool):
            raise self.mismatch(value)
        try:
            if self.python is int and not _INT64.min <= element <= _INT64.max:
                raise OverflowError
            return element.encode() if self.python is str else self.python(element)
        except (UnicodeEncodeError, OverflowError):  # half a character; a number too large
            raise self.mismatch(value) from None

    def from_json(self, document: Any) -> Any:
        if isinstance(document, list) and self.python is bytes:
            return [self.from_json(each) for each in document]
        return from_base64(document, self) if self.python is bytes else document

    def to_json(self, value: Any) -> Any:
        if isinstance(value, list) and self.python is bytes:
            return [self.to_json(each) for each in value]
        return as_base64(value) if self.python is bytes else value


def _nested(kind: Kind, value: Any, depth: int, convert: Callable[[List[Any]], Any]) -> Any:
    """Return the array of lists in lists; `convert` makes some elements. Raises MismatchError."""
    shape: List[int] = []
    level: List[Any] = [value]
    for axis in range(depth):
        sizes = {len(each) if isinstance(each, _LISTS) else -1 for each in level}
        if -1 in sizes:
            raise kind.mismatch(value)
        if len(sizes) > 1:
            raise RaggedError(f"expected {kind.expected}, got rows of different lengths")
        shape += sizes or {max(kind.dims[axis], 0)}  # empty lists say nothing of those below
        level = [item for each in level for item in each]
    array = np.empty(len(level), kind.dtype)
    for at in range(0, len(level), documents.STEP):  # other threads run between them
        array[at : at + documents.STEP] = convert(level[at : at + documents.STEP])
    return array.reshape(shape or [1])


class Choice(Scalars):
    """One of the values of a `Literal`, or of an `Enum`."""

    def __init__(self, values: Sequence[Any], python: Any = None) -> None:
        """Set up with values of one type, and the `Enum` whose values they are."""
        super().__init__(type(values[0]))
        self.values, self._enum = list(values), python
        self.expected = f"one of {', '.join(map(repr, values))}"
        self.schema = {**self.schema, "enum": self.values}

    @staticmethod
    def takes(values: Sequence[Any]) -> bool:
        """Return whether values are of one type that a tensor has."""
        return len({*map(type, values)}) == 1 and type(values[0]) in (int, str, bool)

    def decode(self, array: Any) -> Any:
        value = self._one_of(super().decode(array))
        return value if self._enum is None else self._enum(value)

    def encode(self, value: Any) -> Any:
        return super().encode(self._one_of(value.value if isinstance(value, enum.Enum) else value))

    def _one_of(self, value: Any) -> Any:
        if value not in self.values:
            raise self.mismatch(value)
        return value


def element_kind(hint: Any) -> Optional[Scalars]:
    """Return the kind of a scalar, `Literal` or `Enum`; None for another hint, or mixed values."""
    is_enum = isinstance(hint, type) and issubclass(hint, enum.Enum)
    if isinstance(hint, type) and hint in ELEMENTS:
        return Scalars(hint)
    values = [each.value for each in hint] if is_enum else typing.get_args(hint)
    if values and (is_enum or typing.get_origin(hint) is typing.Literal) and Choice.takes(values):
        return Choice(values, hint if is_enum else None)
    return None


#: The types of elements in JSON, by numpy's letter for the type of the array.
_JSON_TYPES: Dict[str, Set[type]] = {
    "b": {bool},
    "i": {int},
    "u": {int},
    "f": {int, float},
    "O": {str},
}


#: The types of elements of a tensor of strings.
_TEXTS = {str, bytes, np.str_, np.bytes_}


class Arrays(Kind):
    """Arrays of numpy."""

    def __init__(self, datatype: str, dims: Sequence[int], *, is_number: bool = False) -> None:
        name = "STRING" if datatype == "BYTES" else datatype
        self.datatype = f"TYPE_{name}"
        self.dims = list(dims)
        self.is_number = is_number
        self.is_as_it_is = not is_number
        #: The axes with a size of their own, and that.
        self._sizes = [(axis, dim) for axis, dim in enumerate(dims) if dim != -1]
        try:
            self.dtype = np.dtype(
                np.object_ if name == "STRING" else name.replace("FP", "float").lower()
            )
        except TypeError:
            raise HintError(f"numpy has no arrays of {datatype!r}") from None
        if not all(isinstance(dim, int) and (dim == -1 or dim > 0) for dim in dims):
            raise HintError(f"the sizes of an array must be -1 or more than 0, not {list(dims)}")
        self.expected = f"array of {datatype} of shape {self.dims}"
        self.schema = {"type": "array", DATATYPE: name, DIMS: self.dims}
        if is_number:
            self.schema["type"] = "number"

    def entry(self) -> Arrays:
        """Return the kind of the entries of a batch."""
        name = self.schema[DATATYPE]
        entry = Arrays(name, self.dims[1:] or [1], is_number=len(self.dims) == 1)
        entry.is_row = entry.is_as_it_is = True
        return entry

    def decode(self, array: Any) -> Any:
        return array[0] if self.is_number else array

    def encode(self, value: Any) -> Any:
        if type(value) is np.ndarray and value.dtype is self.dtype and self._has_shape(value):
            return value
        # numpy's own arrays of texts lose zeros at their ends
        array = np.asarray(value, self.dtype if self.dtype == np.object_ else None)
        array = array.reshape(1) if self.is_number and not array.ndim else array
        if not np.can_cast(array.dtype, self.dtype, "same_kind") or not self._has_shape(array):
            raise MismatchError(
                f"expected {self.expected}, got array of {array.dtype} of shape {[*array.shape]}"
            )
        if self.dtype == np.object_ and not _TEXTS.issuperset(map(type, array.flat)):
            raise self.mismatch(value)
        return array.astype(self.dtype, copy=False)

    def _has_shape(self, array: Any) -> bool:
        shape = array.shape
        # a list, since a generator costs more, in each response
        return len(shape) == len(self.dims) and all([shape[n] == dim for n, dim in self._sizes])

    def from_json(self, document: Any) -> Any:
        """Return the array of nested lists, unless an element would become another."""
        types = _JSON_TYPES[self.dtype.kind]
        # an older numpy has no OverflowError for integers
        limits = np.iinfo(self.dtype) if self.dtype.kind in "iu" else None

        def convert(piece: List[Any]) -> Any:
            is_inside = not limits or (limits.min <= min(piece) and max(piece) <= limits.max)
            if not types.issuperset(map(type, piece)) or not is_inside:
                raise OverflowError
            return np.array(piece, self.dtype)

        try:
            return _nested(self, document, 0 if self.is_number else len(self.dims), convert)
        except (OverflowError, TypeError):  # numbers that are too large; others than numbers
            raise self.mismatch(document) from None

    def to_json(self, value: Any) -> Any:
        array = self.encode(value)
        is_text = self.dtype == np.object_
        values = Scalars(str, len(self.dims)).decode(array) if is_text else array.tolist()
        return values[0] if self.is_number else values


def array_of_one(data: Any) -> Any:
    """Return an array with one element."""
    array = np.empty(1, np.object_)
    array[0] = data
    return array


def as_bytes(item: Any) -> Any:
    """Return an element of a tensor of strings as bytes: models of this process may give texts."""
    return item.encode() if isinstance(item, str) else item


def as_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def from_base64(document: Any, kind: Kind) -> bytes:
    """Return the bytes of a text in base64, or of a data URL. Raises MismatchError."""
    if not isinstance(document, str):
        raise kind.mismatch(document)
    head, comma, tail = document.partition(";base64,")
    try:
        return documents.from_base64(tail if comma and head.startswith("data:") else document)
    except ValueError:
        raise MismatchError(f"expected {kind.expected} in base64, got other text") from None
