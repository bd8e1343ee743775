"""The kinds of values that hints name, each with its tensor: type, shape, both conversions."""

from __future__ import annotations

import types
import typing
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_extras.functions.backend.api import Array

#: The origins of `X | Y` and `Union[X, Y]`; the first is of Python 3.10.
_UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))
_INT64 = np.iinfo(np.int64)


class MismatchError(Exception):
    """Raised for a value that is not what its hint says."""


class HintError(Exception):
    """Raised for a hint that names no kind of tensor."""


class Kind:
    """The values of one hint."""

    #: TYPE_INT64 and the like.
    datatype = ""
    #: Shape of the tensor of one value; -1 is any size.
    dims: List[int] = [1]  # noqa: RUF012 - nobody changes it
    #: The expected value, in errors.
    expected = ""
    #: True for the entries of an array of numbers: their tensors have a dimension, they have none.
    is_number = False

    def decode(self, array: Any) -> Any:
        """Return the value of an array. Raises MismatchError."""
        raise NotImplementedError

    def encode(self, value: Any) -> Any:
        """Return the array of a value. Raises MismatchError."""
        raise NotImplementedError

    def mismatch(self, value: Any) -> MismatchError:
        text = repr(value)
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        return MismatchError(f"expected {self.expected}, got {shown}")


class _Element(typing.NamedTuple):
    datatype: str
    dtype: Any
    #: The types of Python's values and of numpy's.
    types: Tuple[type, ...]
    #: numpy's letters for types whose arrays become this one.
    letters: str


_ELEMENTS: Dict[type, _Element] = {
    bool: _Element("TYPE_BOOL", np.bool_, (bool, np.bool_), "b"),
    int: _Element("TYPE_INT64", np.int64, (int, np.integer), "iu"),
    float: _Element("TYPE_FP64", np.float64, (float, int, np.floating, np.integer), "fiu"),
    str: _Element("TYPE_STRING", np.object_, (str,), ""),
    bytes: _Element("TYPE_STRING", np.object_, (bytes,), ""),
}


class Scalars(Kind):
    """Values of `int`, `float`, `bool`, `str` or `bytes`, or lists of lists of them."""

    def __init__(self, python: type, depth: int = 0) -> None:
        element = _ELEMENTS[python]
        self.python = python
        self._convert: Any = python
        self.depth = depth
        self.datatype = element.datatype
        self.dims = [-1] * depth or [1]
        self.expected = f"{'list of ' * depth}{python.__name__}"
        self._dtype, self._types, self._letters = element.dtype, element.types, element.letters

    def decode(self, array: Any) -> Any:
        if self._dtype is np.object_:
            flat = np.empty(array.size, np.object_)
            flat[:] = [self._text(item) for item in array.flat]
            array = flat.reshape(array.shape)
        return array.tolist() if self.depth else array.reshape(-1).tolist()[0]

    def _text(self, item: Any) -> Any:
        if isinstance(item, str):  # of a model in this process
            item = item.encode()
        if self.python is bytes:
            return item
        try:
            return item.decode()
        except UnicodeDecodeError:
            raise self.mismatch(item) from None

    def encode(self, value: Any) -> Any:
        if not self.depth:
            array = np.empty([1], self._dtype)
            array[0] = self._element(value)
            return array
        if self._dtype is np.object_:
            return self._objects(value)
        try:
            array = np.array(value)
        except ValueError:  # rows of different lengths
            raise self.mismatch(value) from None
        if not array.size and array.ndim <= self.depth:
            return array.astype(self._dtype).reshape(array.shape + (0,) * (self.depth - array.ndim))
        has_kind = array.ndim == self.depth and array.dtype.kind in self._letters
        if not has_kind or (array.dtype == np.uint64 and self._dtype is np.int64):
            raise self.mismatch(value)
        return array.astype(self._dtype, copy=False)

    def _objects(self, value: Any) -> Any:
        shape: List[int] = []
        level: List[Any] = [value]
        for _ in range(self.depth):
            if not all(isinstance(each, (list, tuple, np.ndarray)) for each in level):
                raise self.mismatch(value)
            sizes = {len(each) for each in level} or {0}
            if len(sizes) > 1:
                raise self.mismatch(value)
            shape += sizes
            level = [item for each in level for item in each]
        array = np.empty(len(level), np.object_)
        array[:] = [self._element(item) for item in level]
        return array.reshape(shape)

    def _element(self, value: Any) -> Any:
        element: Any = value
        is_bool = isinstance(value, (bool, np.bool_))
        if not isinstance(value, self._types) or is_bool is not (self.python is bool):
            raise self.mismatch(value)
        try:
            if self.python is int and not _INT64.min <= element <= _INT64.max:
                raise OverflowError
            return element.encode() if self.python is str else self._convert(element)
        except (UnicodeEncodeError, OverflowError):  # half a character; a number too large
            raise self.mismatch(value) from None


class Choice(Scalars):
    """One of the values of a `Literal`."""

    def __init__(self, values: Sequence[Any]) -> None:
        types = {type(value) for value in values}
        if len(types) != 1 or not types <= {int, str, bool}:
            raise HintError("the values of a Literal must be all int, all str or all bool")
        super().__init__(types.pop())
        self.values = list(values)
        self.expected = f"one of {', '.join(map(repr, values))}"

    def decode(self, array: Any) -> Any:
        return self._one_of(super().decode(array))

    def encode(self, value: Any) -> Any:
        return super().encode(self._one_of(value))

    def _one_of(self, value: Any) -> Any:
        if value not in self.values:
            raise self.mismatch(value)
        return value


class Arrays(Kind):
    """Arrays of numpy."""

    def __init__(self, datatype: str, dims: Sequence[int]) -> None:
        self.datatype = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
        self.dims = list(dims)
        dtype = _numpy_type(self.datatype)
        if dtype is None:
            raise HintError(f"numpy has no arrays of {datatype!r}")
        self._dtype = np.dtype(dtype)
        if not all(isinstance(dim, int) and (dim == -1 or dim > 0) for dim in dims):
            raise HintError(f"the sizes of an array are -1 or more than 0, not {list(dims)}")
        self.expected = f"array of {datatype} of shape {self.dims}"

    def entry(self) -> Arrays:
        """Return the kind of the entries of a batch."""
        entry = Arrays(self.datatype[len("TYPE_") :], self.dims[1:] or [1])
        entry.is_number = len(self.dims) == 1
        return entry

    def decode(self, array: Any) -> Any:
        return array

    def encode(self, value: Any) -> Any:
        array = np.asarray(value)
        if not np.can_cast(array.dtype, self._dtype, "same_kind") or not self.has_shape(array):
            raise MismatchError(
                f"expected {self.expected}, got array of {array.dtype} of shape {[*array.shape]}"
            )
        return array.astype(self._dtype, copy=False)

    def has_shape(self, array: Any) -> bool:
        return array.ndim == len(self.dims) and all(
            dim in (-1, size) for dim, size in zip(self.dims, array.shape)
        )


def _numpy_type(datatype: str) -> Any:
    try:
        return pb_utils.triton_string_to_numpy(datatype)
    except KeyError:
        return None


def kind_of(hint: Any) -> Kind:
    """Return the kind that a hint names. Raises HintError."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and hint in _ELEMENTS:
        return Scalars(hint)
    if origin is typing.Literal:
        return Choice(arguments)
    if origin is list and arguments:
        inner = kind_of(arguments[0])
        if type(inner) is Scalars:
            return Scalars(inner.python, inner.depth + 1)
    if isinstance(hint, type) and issubclass(hint, Array):
        return Arrays(hint.datatype, hint.dims)
    if hint is np.ndarray or origin is np.ndarray:
        return Arrays(_element_of(arguments), [-1])
    raise HintError(f"a model cannot have {getattr(hint, '__name__', hint)!r}")


def _element_of(arguments: Tuple[Any, ...]) -> str:
    """Return the type of `NDArray[np.float32]`; that of a plain array is FP32."""
    dtype = typing.get_args(arguments[1])[0] if len(arguments) > 1 else np.float32
    if not (isinstance(dtype, type) and issubclass(dtype, np.generic)):
        raise HintError("an array's hint must name the type of its elements: NDArray[np.float32]")
    if dtype is np.bool_:
        return "BOOL"
    letters = {"i": "INT", "u": "UINT", "f": "FP"}
    named = np.dtype(dtype)
    return f"{letters.get(named.kind, named.name)}{8 * named.itemsize}"


def without_none(hint: Any) -> Tuple[Any, bool]:
    """Return a hint without `None`, and whether it had that."""
    if typing.get_origin(hint) not in _UNIONS:
        return hint, False
    others = [each for each in typing.get_args(hint) if each is not type(None)]
    if len(others) != 1:
        raise HintError("a model cannot have values of several types")
    return others[0], True
