"""Turns values of the command line into tensors, and tensors into text. Reads files only."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zmqtriton.sdk.wire import InvalidArgument, datatypes, tensors

_TRUTH = {"true": True, "false": False, "1": True, "0": False}


class TensorInfo(NamedTuple):
    """One input or output, as the model's metadata has it."""

    name: str
    datatype: datatypes.Datatype
    shape: tuple[int, ...]

    @classmethod
    def from_metadata(cls, entry: Mapping[str, Any]) -> TensorInfo:
        return cls(entry["name"], datatypes.BY_NAME[entry["datatype"]], tuple(entry["shape"]))

    def describe(self) -> str:
        return f"{self.name} {self.datatype.name} {list(self.shape)}"


def read_inputs(
    words: Sequence[str], infos: Sequence[TensorInfo], *, fill: str = ""
) -> dict[str, Any]:
    """Read inputs given as NAME=VALUE; others are filled with `zeros` or `random` values.

    Raises InvalidArgument.
    """
    by_name = {info.name: info for info in infos}
    arrays: dict[str, Any] = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not sign:
            raise InvalidArgument(f"'{word}' is not NAME=VALUE; {_expected(infos)}")
        if name not in by_name:
            raise InvalidArgument(f"the model has no input '{name}'; {_expected(infos)}")
        arrays[name] = _fit(_read_value(text, by_name[name]), by_name[name])
    if fill:
        make = {"zeros": _zeros, "random": _random}[fill]
        arrays.update({info.name: make(info) for info in infos if info.name not in arrays})
    elif not arrays:
        raise InvalidArgument(f"no inputs are given (--zeros fills them); {_expected(infos)}")
    return arrays


def read_document(document: Any, infos: Sequence[TensorInfo]) -> dict[str, Any]:
    """Read inputs given as a JSON object of values by name. Raises InvalidArgument."""
    if not isinstance(document, dict):
        raise InvalidArgument(f"the JSON must be an object of values by name; {_expected(infos)}")
    by_name = {info.name: info for info in infos}
    if unknown := next((name for name in document if name not in by_name), None):
        raise InvalidArgument(f"the model has no input '{unknown}'; {_expected(infos)}")
    return {
        name: _fit(_to_array(value, by_name[name]), by_name[name])
        for name, value in document.items()
    }


def _expected(infos: Iterable[TensorInfo]) -> str:
    texts = ", ".join(info.describe() for info in infos)
    return f"it takes {texts}" if texts else "it takes no inputs"


def _read_value(text: str, info: TensorInfo) -> Any:
    if text.startswith("@"):
        return _read_file(Path(text[1:]), info)
    if info.datatype.number == datatypes.BYTES:
        parsed = _parse_list(text, lambda word: word)
        if any(isinstance(each, dict) for each in parsed):  # a text that is JSON itself: a chat
            parsed = [text]
        return _to_array(parsed, info)
    return _to_array(_parse_list(text, lambda word: _parse_number(word, info)), info)


def _parse_list(text: str, parse: Callable[[str], Any]) -> Any:
    """Parse a list in JSON; a text without a bracket is one value, or several with commas."""
    if text.lstrip().startswith("["):
        try:
            return json.loads(text)
        except ValueError as error:
            raise InvalidArgument(f"'{text}' must be a list in JSON: {error}") from None
    parsed = parse(text)
    return parsed if isinstance(parsed, list) else [parsed]


def _parse_number(text: str, info: TensorInfo) -> Any:
    if "," in text:
        return [_parse_number(word.strip(), info) for word in text.split(",")]
    if info.datatype.name == "BOOL" and text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise InvalidArgument(f"'{text}' must be of type {info.datatype.name} for input '{info.name}'")


def _read_file(path: Path, info: TensorInfo) -> Any:
    try:
        if path.suffix == ".npy":
            return _to_array(np.load(path, allow_pickle=False), info)
        if info.datatype.number == datatypes.BYTES:
            return np.array([path.read_bytes()], np.object_)
    except (OSError, ValueError) as error:
        raise InvalidArgument(
            f"input '{info.name}' cannot be read from {path}, name another file: {error}"
        ) from None
    raise InvalidArgument(f"input '{info.name}': {path} must be a .npy file")


def _to_array(value: Any, info: TensorInfo) -> Any:
    kind = info.datatype.numpy or np.float32
    try:
        array = np.array(value)
        if array.dtype.kind in "biuf" and kind is not np.object_:
            if array.dtype.kind == "f" and np.dtype(kind).kind in "iu" and (array % 1).any():
                raise ValueError("a fraction, write whole numbers")
            if np.dtype(kind).kind in "iu":
                limits = np.iinfo(kind)
                if array.size and not limits.min <= array.min() <= array.max() <= limits.max:
                    raise ValueError(f"must be {limits.min} to {limits.max}")
            return array.astype(kind)
        if kind is np.object_:
            texts = [_encode_text(element) for element in array.astype(np.object_).ravel().tolist()]
            return np.array(texts, np.object_).reshape(array.shape)
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(
            f"input '{info.name}' cannot be made {info.datatype.name}: {error}"
        ) from None
    raise InvalidArgument(f"input '{info.name}' must be {info.datatype.name}, not {array.dtype}")


def _encode_text(element: Any) -> bytes:
    """Return the bytes of a number or of a text, which may have any bytes on a command line."""
    if isinstance(element, bytes):
        return element
    if isinstance(element, bool) or not isinstance(element, (str, int, float)):
        raise ValueError(f"{json.dumps(element)} must be a text")
    return str(element).encode("utf-8", "surrogateescape")


def _fit(array: Any, info: TensorInfo) -> Any:
    """Give an array the shape that the model takes. Raises InvalidArgument if no shape fits."""
    if _matches(array.shape, info.shape):
        return array
    if info.shape[:1] == (-1,) and _matches(array.shape, info.shape[1:]):
        return array.reshape(1, *array.shape)
    if array.ndim <= 1:
        # A batch of one; another variable dimension takes what there is.
        variable = [i for i, dim in enumerate(info.shape) if dim == -1]
        shape = list(info.shape)
        for i in variable[:-1]:
            shape[i] = 1
        fixed_size = math.prod(dim for dim in shape if dim != -1)
        if fixed_size and array.size % fixed_size == 0 and (variable or array.size == fixed_size):
            return array.reshape(shape)
    raise InvalidArgument(
        f"input '{info.name}' has the shape {list(array.shape)}, but must have {list(info.shape)}"
    )


def _matches(shape: Sequence[int], expected: Sequence[int]) -> bool:
    return len(shape) == len(expected) and all(
        dim in (-1, own) for own, dim in zip(shape, expected, strict=True)
    )


def _zeros(info: TensorInfo) -> Any:
    shape = [1 if dim == -1 else dim for dim in info.shape]
    if info.datatype.number == datatypes.BYTES:
        return np.full(shape, b"", np.object_)
    return np.zeros(shape, info.datatype.numpy or np.float32)


def _random(info: TensorInfo) -> Any:
    """Return random numbers from 0 to 1, small integers or words; the same in each call."""
    chance = np.random.default_rng(0)
    empty = _zeros(info)
    if empty.dtype == np.object_:
        letters = chance.integers(ord("a"), ord("z") + 1, (empty.size, 8), np.uint8)
        return np.array([each.tobytes() for each in letters], np.object_).reshape(empty.shape)
    if empty.dtype.kind in "iub":
        return chance.integers(0, 2 if empty.dtype.kind == "b" else 10, empty.shape).astype(
            empty.dtype
        )
    return chance.random(empty.shape).astype(empty.dtype)


def encode(array: Any, datatype: datatypes.Datatype) -> bytes:
    """Return the bytes of a tensor as they travel."""
    if datatype.numpy_name:
        return bytes(tensors.from_numpy(array))
    halves = np.ascontiguousarray(array).view(np.uint32) >> 16
    return bytes(halves.astype(datatype.numpy_bits).tobytes())


def decode(datatype: str, shape: Sequence[int], data: bytes) -> Any:
    """Return the array of an output; what numpy lacks comes as float32, to compute with."""
    row = datatypes.BY_NAME[datatype]
    if row.numpy_name:
        return tensors.to_numpy(row.number, shape, data)
    halves = np.frombuffer(data, row.numpy_bits).astype(np.uint32)
    return (halves << 16).view(np.float32).reshape(shape)


def to_json(array: Any) -> Any:
    """Return nested lists of JSON's types; bytes are read as UTF-8."""
    if array.dtype == np.object_:
        texts = [_text(element) for element in array.ravel().tolist()]
        return np.array(texts, np.object_).reshape(array.shape).tolist()
    return array.tolist()


def format_array(array: Any, width: int) -> str:
    """Return the values as text for people, without the middle of a large array."""
    if array.dtype == np.object_:
        if array.size == 1:
            return _text(array.reshape(-1)[0])
        array = np.array([_text(element) for element in array.ravel()]).reshape(array.shape)
    return np.array2string(array, max_line_width=width, threshold=200, separator=", ")


def _text(element: Any) -> str:
    return element.decode("utf-8", "replace") if isinstance(element, bytes) else str(element)
