"""The kinds of values: scalars, lists, arrays. Each converts between values, tensors and JSON.

A kind can be made from a JSON schema alone. So the server reads and writes plain JSON with the same
code as the model's process, without importing the function.
"""

from __future__ import annotations

import base64
import enum
import typing
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from zmqtriton_extras.functions.backend.names import DATATYPE, DIMS
from zmqtriton_floor.sdk import clipped, described, documents, shown

_INT64 = np.iinfo(np.int64)
_ONE_LINE = {ord("\n"): " ", ord("'"): "\N{RIGHT SINGLE QUOTATION MARK}"}
#: Suffix of the name of a request parameter with the errors that the server found in an argument.
ERROR = ".error"
#: Maximum number of errors in a response; the others are only counted.
MAX_ERRORS = 20


class PlacedError(Exception):
    """An error with the place of the wrong value, such as `items.0.count`."""

    def __init__(self, text: str, *place: Any) -> None:
        super().__init__(text)
        self.place = [*map(str, place)]
        #: Further errors of the same request.
        self.more: List[PlacedError] = []

    def __str__(self) -> str:
        """Return the first errors with their places, one a line, and the number of others."""
        lines, left = self.lines(MAX_ERRORS), len(self.more) + 1 - MAX_ERRORS
        return clipped("\n".join(lines + [f"{left} more errors"][: max(left, 0)]))

    def lines(self, count: int) -> List[str]:
        """Return a line for each of the first `count` errors."""
        errors = [self, *self.more][:count]
        return [": ".join(filter(None, [".".join(each.place), each.args[0]])) for each in errors]


class MismatchError(PlacedError):
    """Raised for a value that does not fit its hint."""


class RaggedError(MismatchError):
    """Raised for lists of different lengths in a list, which cannot be one tensor."""


class HintError(PlacedError):
    """Raised for a hint that cannot be served."""


def raise_all(errors: Sequence[PlacedError]) -> None:
    """Raise the first error, with all others in its `more`, if there is an error."""
    if errors:
        errors[0].more += [each for error in errors[1:] for each in (error, *error.more)]
        raise errors[0]


def named(name: Any) -> str:
    """Return a name that a client has chosen in quotes, which logs replace."""
    return f"'{shown(name).translate(_ONE_LINE)}'"


class Place:
    """A with statement that adds a name to the place of errors that are raised in it."""

    def __init__(self, name: Any, errors: Optional[List[MismatchError]] = None) -> None:
        """Set up; if `errors` is given, a MismatchError is added to it instead of raised."""
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
    """Return the results of `convert` for rows of a place, for errors, and its arguments.

    All rows are tried. If some fail, their errors are raised together.
    """
    errors: List[MismatchError] = []
    results = []
    for place, arguments in rows:
        with Place(place, errors):
            results.append(convert(*arguments))
    raise_all(errors)
    return results


class Kind:
    """Converts the values of one hint to and from tensors and JSON."""

    #: Type of the tensor in a configuration, such as TYPE_INT64.
    datatype = "TYPE_STRING"
    #: numpy's type of the tensor.
    dtype: Any = np.object_
    #: Shape of the tensor of one value; -1 is any size.
    dims: List[int] = [1]  # noqa: RUF012 - nobody changes it
    #: Description of an expected value, for errors.
    expected = ""
    #: True if a value is one row of an array, whose rows are the entries of a batch.
    is_row = False
    #: True if a value is a number, whose tensor has the shape [1].
    is_number = False
    #: True if the tensor's array is the value, without conversion.
    is_as_it_is = False
    #: True if a value is the content of one file.
    is_file = False
    #: True if values are files with a client's names and content types.
    has_names = False
    #: True if decode() accepts a view of the file's bytes.
    takes_view = False
    schema: Dict[str, Any] = {}  # noqa: RUF012 - likewise
    #: Adapter that checks values further, such as bounds; None if the tensor says all.
    adapter: Any = None

    def blank(self) -> Any:
        """Return a placeholder array for a wrong value; it needs no memory for its elements."""
        element = np.array(b"" if self.dtype == np.object_ else 0, self.dtype)
        return np.broadcast_to(element, [max(dim, 0) for dim in self.dims])

    def decode(self, array: Any) -> Any:
        """Convert the array of a tensor to the function's value. Raises MismatchError."""
        raise NotImplementedError

    def encode(self, value: Any) -> Any:
        """Convert a value to the array of its tensor. Raises MismatchError."""
        raise NotImplementedError

    def from_json(self, document: Any) -> Any:
        """Convert a parsed JSON value to the value that encode() takes. Raises MismatchError."""
        return document

    def to_json(self, value: Any) -> Any:
        """Convert a value that decode() has returned to one that JSON can have."""
        return value

    def mismatch(self, value: Any) -> MismatchError:
        return MismatchError(f"expected {self.expected}, got {described(value)}")


class _Element(NamedTuple):
    datatype: str
    dtype: Any
    #: Accepted types of values, of Python and numpy.
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
    """Values of `int`, `float`, `bool`, `str` or `bytes`, or nested lists of one of these.

    `depth` is the number of list levels.
    """

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
        """Convert an array to nested lists."""
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
    """Convert nested lists to an array. Raises MismatchError.

    `convert` gets some elements at a time, and returns them as elements of the array.
    """
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
        """Set up with the permitted values, all of one type, and their `Enum` if they have one."""
        super().__init__(type(values[0]))
        self.values, self._enum = list(values), python
        self.expected = f"one of {', '.join(map(repr, values))}"
        self.schema = {**self.schema, "enum": self.values}

    @staticmethod
    def takes(values: Sequence[Any]) -> bool:
        """Return whether all values have the same type, and tensors have this type."""
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
    """Return the kind of a scalar, `Literal` or `Enum`.

    None for any other hint, and for values of different types.
    """
    is_enum = isinstance(hint, type) and issubclass(hint, enum.Enum)
    if isinstance(hint, type) and hint in ELEMENTS:
        return Scalars(hint)
    values = [each.value for each in hint] if is_enum else typing.get_args(hint)
    if values and (is_enum or typing.get_origin(hint) is typing.Literal) and Choice.takes(values):
        return Choice(values, hint if is_enum else None)
    return None


#: Accepted types of elements in JSON, by numpy's letter for the array's type.
_JSON_TYPES: Dict[str, Set[type]] = {
    "b": {bool},
    "i": {int},
    "u": {int},
    "f": {int, float},
    "O": {str},
}


#: Accepted types of elements of a string tensor.
_TEXTS = {str, bytes, np.str_, np.bytes_}


class Arrays(Kind):
    """numpy arrays of one type and shape."""

    def __init__(self, datatype: str, dims: Sequence[int], *, is_number: bool = False) -> None:
        name = "STRING" if datatype == "BYTES" else datatype
        self.datatype = f"TYPE_{name}"
        self.dims = list(dims)
        self.is_number = is_number
        self.is_as_it_is = not is_number
        #: Axis and size of each dimension with a fixed size.
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
        """Return the kind of one entry, for a batch whose entries are the rows of this array."""
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
        """Convert nested lists to an array. Raises MismatchError for elements that would change."""
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
    """Return an element of a string tensor as bytes; models in the same process may pass texts."""
    return item.encode() if isinstance(item, str) else item


def as_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def from_base64(document: Any, kind: Kind) -> bytes:
    """Decode base64 text or a data URL. Raises MismatchError."""
    if not isinstance(document, str):
        raise kind.mismatch(document)
    head, comma, tail = document.partition(";base64,")
    try:
        return documents.from_base64(tail if comma and head.startswith("data:") else document)
    except ValueError:
        raise MismatchError(f"expected {kind.expected} in base64, got other text") from None
