"""The kinds of plain values that hints name: numbers, texts, lists and arrays."""

from __future__ import annotations

import types
import typing
from typing import Any, Tuple

import numpy as np

from zmqtriton_extras.functions.backend.api import Array
from zmqtriton_extras.functions.backend.kinds import (
    ELEMENTS,
    Arrays,
    Choice,
    HintError,
    Kind,
    Scalars,
)

#: The origins of `X | Y` and `Union[X, Y]`; the first is of Python 3.10.
_UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))


def plain_kind(hint: Any) -> Kind:
    """Return the kind that a hint names. Raises HintError."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and hint in ELEMENTS:
        return Scalars(hint)
    if origin is typing.Literal:
        return Choice(arguments)
    if origin is list and arguments:
        inner = plain_kind(arguments[0])
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
    name: str = np.dtype(dtype).name
    return name.replace("float", "FP").upper()


def without_end(hint: Any, end: type) -> Any:
    """Return the hint of a response, by that of a step's results: `list[str | None | End]`."""
    results = typing.get_args(hint)
    if typing.get_origin(hint) is not list or len(results) != 1:
        raise HintError("step needs a return hint such as -> list[str | None]")
    if typing.get_origin(results[0]) not in _UNIONS:
        return results[0]
    kinds = [each for each in typing.get_args(results[0]) if each not in (type(None), end)]
    return typing.Union[tuple(kinds)] if kinds else None


def without_none(hint: Any) -> Tuple[Any, bool]:
    """Return a hint without `None`, and whether it had that."""
    if typing.get_origin(hint) not in _UNIONS:
        return hint, False
    others = [each for each in typing.get_args(hint) if each is not type(None)]
    if len(others) != 1:
        raise HintError("a model cannot have values of several types")
    return others[0], True
