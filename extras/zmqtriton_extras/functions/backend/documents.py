"""Finds the kind for a hint or a schema; a hint without a tensor type, as a dataclass, is JSON.

The model's process checks JSON values with `adapters`. The server knows only their schema.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import json
import pathlib
import sys
import typing
from typing import Any, Callable, Dict, List, Tuple

import numpy as np

from zmqtriton_extras.functions.backend import media
from zmqtriton_extras.functions.backend.adapters import UNIONS, adapter_of
from zmqtriton_extras.functions.backend.api import Array
from zmqtriton_extras.functions.backend.kinds import (
    ELEMENTS,
    Arrays,
    Choice,
    HintError,
    Kind,
    MismatchError,
    Place,
    Scalars,
    array_of_one,
    as_bytes,
    element_kind,
)
from zmqtriton_extras.functions.backend.names import CONTENT, DATATYPE, DIMS
from zmqtriton_floor.sdk import described, documents, shown

JSON = "application/json"
_dumps = functools.partial(json.dumps, ensure_ascii=False, separators=(",", ":"))
#: Limits of results: only 900 levels, because the standard library's parser is recursive.
_NO_LIMITS = documents.DocumentLimits(*[sys.maxsize] * 4)._replace(depth=900)


class Documents(Kind):
    """Converts values to and from JSON text in a tensor of one string.

    In the model's process an adapter checks them. In the server there is only the schema.
    """

    #: Limits of a client's JSON.
    limits = documents.limits_of(documents.LIMITS.bytes)

    def __init__(self, name: str, schema: Dict[str, Any], adapter: Any = None) -> None:
        self.adapter = adapter
        if adapter is None:  # what a function has answered has no limit
            self.limits = _NO_LIMITS
        self.expected = f"JSON for {name}"
        self.schema = {"title": name, **schema, CONTENT: JSON}

    def decode(self, array: Any) -> Any:
        data = as_bytes(array.reshape(-1)[0])
        try:
            document = documents.parse(data, limits=self.limits)
        except ValueError as error:  # numbers of too many digits are no DocumentError
            raise MismatchError(f"expected {self.expected}: {error}") from None
        return document if self.adapter is None else self.adapter.read(document)

    def encode(self, value: Any) -> Any:
        try:
            # a record would be one piece
            document = _inner_of(value) if dataclasses.is_dataclass(value) else value
            return array_of_one(b"".join(documents.pieces(document, self._write)))
        except (TypeError, ValueError, RecursionError):
            with contextlib.suppress(RecursionError):
                _unwritable(value)
            raise MismatchError("JSON must be less deep, and its keys must be texts") from None

    def _write(self, value: Any) -> bytes:
        return write(value, has_all_numbers=self.adapter is None)


def write(value: Any, *, has_all_numbers: bool = False) -> bytes:
    """Return a value as JSON text.

    NaN and infinities become null, unless `has_all_numbers` is set.
    """
    try:
        return _dumps(value, allow_nan=has_all_numbers).encode()
    except (TypeError, ValueError):
        core = sys.modules.get("pydantic_core")
    if core is not None:
        mode = "constants" if has_all_numbers else "null"
        return core.to_json(value, fallback=_inner_of, inf_nan_mode=mode, bytes_mode="base64")  # type: ignore[no-any-return]
    text = _dumps(value, default=_inner_of)
    if not has_all_numbers:
        text = _dumps(json.loads(text, parse_constant=lambda word: None))
    return text.encode()


def _inner_of(value: Any) -> Any:
    """Convert a value of another type to one that JSON has. Raises TypeError.

    Only the outermost level is converted.
    """
    if hasattr(value, "tolist"):  # of numpy
        return value.tolist()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (set, frozenset, collections.deque)):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    raise TypeError(f"no JSON for a value of type {shown(type(value).__name__)}: convert it")


def _unwritable(value: Any) -> None:
    """Raise MismatchError for the first inner value that cannot be JSON, with its place."""
    value = _inner_of(value) if dataclasses.is_dataclass(value) else value
    if isinstance(value, (dict, list, tuple)):
        for name, each in value.items() if isinstance(value, dict) else enumerate(value):
            with Place(shown(name)):
                _unwritable(each)
        return
    try:
        write(value)
    except (TypeError, ValueError):
        raise MismatchError(f"no JSON for {described(value)}: convert it") from None


# --------------------------------------------------------- values of files


class _Path(type(pathlib.Path())):  # type: ignore[misc]
    """A path that keeps its file: the file is deleted with this object."""

    file: media.File


def _path_of(file: media.File) -> _Path:
    path = _Path(file.path)
    path.file = file
    return path


def _picture_of(image: media.Image) -> Any:
    image.check()
    return image.pil


#: Functions that make kinds, for classes of other libraries by module and name.
_OTHERS: Dict[Tuple[str, str], Callable[[], Kind]] = {
    ("PIL.Image", "Image"): lambda: media.MediaKind(media.Image, _picture_of, media.Image.of),
    ("pathlib", "Path"): lambda: media.MediaKind(
        media.File, _path_of, lambda path: media.File(path.read_bytes())
    ),
}


# ------------------------------------------------------------------ hints


def kind_of(hint: Any) -> Kind:
    """Return the kind of values for a hint. Raises HintError."""
    bare, has_more = _bare(hint)
    kind: Kind | None = _tensor_kind(bare)
    if kind is None:
        return document_kind(hint)
    if has_more and isinstance(kind, Scalars):
        kind.adapter = adapter_of(hint)
        kind.schema = {**kind.schema, **kind.adapter.schema}
    elif has_more:
        kind.schema = {**kind.schema, **_description(hint)}
    return kind


def document_kind(hint: Any) -> Documents:
    """Return the kind that sends a hint's values as JSON. Raises HintError."""
    try:
        adapter = adapter_of(hint)
    except HintError as error:
        raise HintError(f"{name_of(hint)}: {error.args[0]}{_remedy(hint)}") from None
    return Documents(name_of(hint), adapter.schema, adapter)


def name_of(hint: Any) -> str:
    """Return a hint as text, as it is written in code."""
    if isinstance(hint, type) and typing.get_origin(hint) is None:
        return "None" if hint is type(None) else hint.__name__
    return str(hint).replace("typing.", "")


def _bare(hint: Any) -> Tuple[Any, bool]:
    """Return a hint without `Annotated` and aliases, and whether `Annotated` was used."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    for name in ("__supertype__", "__value__"):  # of NewType, and of `type X = ...`
        if hasattr(hint, name) and not isinstance(hint, type):
            return _bare(getattr(hint, name))
    if hasattr(hint, "__metadata__"):
        return _bare(hint.__origin__)[0], True
    if origin is list and arguments:
        inner, has_more = _bare(arguments[0])
        return List[inner], has_more  # type: ignore[valid-type]
    return hint, False


def _tensor_kind(hint: Any) -> Any:
    """Return the kind for a hint that has its own tensor type, or None. Raises HintError."""
    kind: Any = element_kind(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    key = (getattr(hint, "__module__", ""), getattr(hint, "__name__", ""))
    if kind is not None:
        return kind
    if hint in media.CLASSES.values():
        return media.MediaKind(hint)
    if key in _OTHERS:
        return _OTHERS[key]()
    if origin is list and arguments:
        inner = _tensor_kind(arguments[0])
        if type(inner) is Scalars:
            return Scalars(inner.python, inner.depth + 1)
        return media.Several(inner) if isinstance(inner, media.MediaKind) else None
    if isinstance(hint, type) and issubclass(hint, Array):
        return Arrays(hint.datatype, hint.dims)
    if isinstance(hint, type) and issubclass(hint, np.generic):
        return Arrays(_datatype_of(hint), [1], is_number=True)
    return _array_of(arguments) if np.ndarray in (hint, origin) else None


def _array_of(arguments: Tuple[Any, ...]) -> Arrays:
    """Return the kind for the arguments of `NDArray[np.float32]`; without arguments it is FP32."""
    shape, dtype = (*arguments, np.dtype, np.float32)[:2] if arguments else ((), np.float32)
    sizes = typing.get_args(shape)
    dims = 1 if not sizes or Ellipsis in sizes else len(sizes)
    element = (*typing.get_args(dtype), dtype)[0]
    if not (isinstance(element, type) and issubclass(element, np.generic)):
        raise HintError("an array's hint must name the type of its elements: NDArray[np.float32]")
    return Arrays(_datatype_of(element), [-1] * dims)


def _datatype_of(element: Any) -> str:
    name: str = np.dtype(element).name
    return name.replace("float", "FP").upper()


def _description(hint: Any) -> Dict[str, Any]:
    """Return the schema's description from the `Annotated` of an array or a file.

    Raises HintError for bounds, which nothing checks there.
    """
    rows = [each for each in getattr(hint, "__metadata__", ()) if not isinstance(each, str)]
    if any(getattr(each, "metadata", True) for each in rows):
        raise HintError("bounds are for scalars, lists of these and JSON; check it in the function")
    return {"description": rows[-1].description} if rows else {}


def _remedy(hint: Any) -> str:
    """Return advice for the author of a hint that contains a type without JSON."""
    text = str(hint)
    if "ndarray" in text:
        return '; write Array["FP32", -1, -1] for a tensor, or list[list[float]]'
    if "pandas." in text:
        return "; write rows: list[dict], and pandas.DataFrame(rows) in the function"
    if any(f"media.{each.__name__}" in text for each in media.CLASSES.values()):
        return "; a picture, sound or file is an argument itself, or in a list: image: list[Image]"
    return "; write a dataclass, or a model of pydantic, whose fields are of such types"


def kind_of_schema(schema: Dict[str, Any]) -> Kind:
    """Return the kind for a schema that another process has made from a hint.

    Its values are basic types instead of the hint's own classes.
    """
    content = schema.get(CONTENT)
    if content == JSON:
        return Documents(schema.get("title", "it"), schema)
    if content is not None:
        return media.MediaKind(media.CLASSES[content])
    if DATATYPE in schema:
        return Arrays(schema[DATATYPE], schema[DIMS], is_number=schema["type"] == "number")
    if "enum" in schema:
        return Choice(schema["enum"])
    if CONTENT in schema.get("items", ()):
        return media.Several(media.MediaKind(media.CLASSES[schema["items"][CONTENT]]))
    depth, inner = 0, schema
    while inner.get("type") == "array":
        depth, inner = depth + 1, inner.get("items", {})
    for python, element in ELEMENTS.items():
        is_bytes = "contentEncoding" in inner
        if inner.get("type") == element.json_type and is_bytes is (python is bytes):
            return Scalars(python, depth)
    raise HintError(f"no hint means the schema {schema}: use one of the guide's table")


def without_end(hint: Any, end: type) -> Any:
    """Return the hint of one response for the return hint of `step`.

    For `list[str | None | End]` it is `str`.
    """
    results = typing.get_args(hint)
    if typing.get_origin(hint) is not list or len(results) != 1:
        raise HintError("step needs a return hint such as -> list[str | None]")
    if typing.get_origin(results[0]) not in UNIONS:
        return results[0]
    kinds = [each for each in typing.get_args(results[0]) if each not in (type(None), end)]
    return typing.Union[tuple(kinds)] if kinds else None
