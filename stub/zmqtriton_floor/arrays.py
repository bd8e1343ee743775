"""Converts Python values to tensors of a request, and tensors of a response to arrays.

Inputs are values that numpy understands, values with `__dlpack__`, or wire Tensors; outputs are
numpy arrays. Arrays of large tensors are views into the memory of the model's process, which cannot
reuse that memory until they are dropped.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

import numpy as np

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.datatypes import BY_CONFIG_NAME, BY_NUMBER, BYTES, WITHOUT_NUMPY
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.tensors import address_of, datatype_of, from_numpy, to_numpy
from zmqtriton_floor.wire import Tensor

#: Kinds of numpy types that are converted to the type of a model's input.
_NUMBERS = "biuf"


def to_tensors(inputs: Mapping[str, Any], config: Mapping[str, Any]) -> List[Tensor]:
    """Return the inputs of a request to the model with this configuration."""
    types = types_of(config)
    return [_tensor(name, value, types.get(name, "")) for name, value in inputs.items()]


def types_of(config: Mapping[str, Any]) -> Dict[str, str]:
    """Return the datatypes of a model's inputs, as its configuration names them."""
    return {entry["name"]: entry.get("data_type", "") for entry in config.get("input", ())}


def _tensor(name: str, value: Any, data_type: str) -> Tensor:
    if type(value) is Tensor:
        return value
    array = to_array(name, value, data_type)
    if array.dtype.kind == "U":
        array = array.astype(np.object_)
    try:
        number = datatype_of(array).number
    except KeyError:
        raise InvalidArgument(
            f"input '{name}' has no datatype for {array.dtype}: convert it with astype"
        ) from None
    shared = view_of(array) if array.nbytes > INLINE_BYTES else None
    return Tensor(name, number, list(array.shape), from_numpy(array) if shared is None else shared)


def to_array(name: str, value: Any, data_type: str) -> Any:
    """Return a value as an array for an input of this type, over its own memory if it fits."""
    datatype = BY_CONFIG_NAME.get(data_type)
    dtype = None if datatype is None or datatype.number == BYTES else datatype.numpy
    if not isinstance(value, np.ndarray):
        if not hasattr(value, "__dlpack__"):
            try:
                return np.asarray(value, dtype=dtype)
            except (ValueError, TypeError, OverflowError) as error:
                raise InvalidArgument(f"input '{name}' must be an array: {error}") from None
        value = np.from_dlpack(value)
    if dtype is None or value.dtype == dtype or value.dtype.kind not in _NUMBERS:
        return value
    with np.errstate(all="ignore"):
        converted = value.astype(dtype)
    if not _keeps_kind(value, converted):
        raise InvalidArgument(
            f"input '{name}' is an array of {value.dtype}, which {data_type} of the model cannot "
            f"hold unchanged: pass np.{dtype.__name__}"
        )
    return converted


def _keeps_kind(array: Any, converted: Any) -> bool:
    """True if floats stay finite where the numbers were finite, or integers stay equal."""
    if converted.dtype.kind == "f":
        return bool((np.isfinite(converted) | ~np.isfinite(array)).all())
    return array.dtype.kind in "biu" and bool((converted == array).all())


def to_arrays(tensors: List[Tensor]) -> Dict[str, Any]:
    """Return outputs by name. Large ones are views that cannot be written to."""
    return {tensor.name: _output(tensor) for tensor in tensors}


def _output(tensor: Tensor) -> Any:
    _, datatype, shape, data = tensor
    if datatype in WITHOUT_NUMPY or (type(data) is memoryview and datatype != BYTES):
        return np.frombuffer(data, dtype=BY_NUMBER[datatype].numpy_bits).reshape(shape)
    return to_numpy(datatype, shape, data)


def view_of(array: Any) -> Optional[memoryview]:
    """Return the bytes of an array that views a memoryview, perhaps the arena's; else None."""
    memory = array.base
    while isinstance(memory, np.ndarray):
        memory = memory.base
    if type(memory) is not memoryview or not array.flags.c_contiguous:
        return None
    if memory.format != "B" or memory.ndim != 1:
        return None
    start = address_of(array) - address_of(np.frombuffer(memory, np.uint8))
    return memory[start : start + array.nbytes]
