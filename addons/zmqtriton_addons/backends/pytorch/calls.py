"""From named tensors to the arguments of forward(), and from what it returns to named outputs."""

from __future__ import annotations

import re
from typing import Any, List

import numpy as np
import torch
import triton_python_backend_utils as pb_utils

from zmqtriton_addons.backends import execution
from zmqtriton_addons.backends.pytorch.modules import Argument

_INDEXED = re.compile(r".*__(\d+)")


def order(names: list[str], arguments: list[Argument]) -> list[str]:
    """Return the names of tensors in the order of the arguments.

    They are called like the arguments, or end in __0, __1 and so on, or else keep their order.
    """
    own_names = [argument.name for argument in arguments]
    if own_names and all(name in own_names for name in names):
        return sorted(names, key=own_names.index)
    places = [_INDEXED.fullmatch(name) for name in names]
    if names and all(places):
        return sorted(names, key=lambda name: int(_INDEXED.sub(r"\1", name)))
    return names


def arguments_for(inputs: dict[str, Any], names: list[str], arguments: list[Argument]) -> list[Any]:
    """Return the positional arguments for a call. `names` are those of the inputs, in order."""
    tensors: List[Any] = [_argument(inputs.get(name), name) for name in names]
    if len(arguments) == 1 and arguments[0].is_dictionary:
        return [{name: tensor for name, tensor in zip(names, tensors) if tensor is not None}]
    if len(arguments) == 1 and arguments[0].is_list:
        return [tensors]
    own_names = [argument.name for argument in arguments]
    if all(name in own_names for name in names):
        by_name = dict(zip(names, tensors))
        last = max((own_names.index(name) for name in names), default=-1)
        return [by_name.get(name) for name in own_names[: last + 1]]
    return tensors


def _argument(value: Any, name: str) -> Any:
    """Return a tensor as it is, and strings as a list: PyTorch has no tensors of them."""
    if not isinstance(value, np.ndarray):
        return value
    if value.size != max(value.shape, default=1):
        raise ValueError(f"input '{name}' of strings must have one dimension, got {value.shape}")
    return execution.to_strings(value.reshape(-1), name).tolist()


def outputs_of(returned: Any, names: list[str]) -> dict[str, Any]:
    """Return the named outputs of a call. `names` are all configured ones, in order."""
    if isinstance(returned, dict):
        missing = [name for name in names if name not in returned]
        if missing:
            raise ValueError(
                f"the model returns no '{missing[0]}', only {', '.join(map(str, returned))}"
            )
        return {name: _array(returned[name], name) for name in names}
    is_text = isinstance(returned, list) and bool(returned) and isinstance(returned[0], str)
    values = returned if isinstance(returned, (tuple, list)) and not is_text else [returned]
    if len(values) < len(names):
        raise ValueError(
            f"The number of outputs of the model is {len(values)}, expected {len(names)}"
        )
    return {name: _array(value, name) for name, value in zip(names, values)}


def _array(value: Any, name: str) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().contiguous()
        return value if value.dtype == torch.bfloat16 else value.numpy()
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return np.array([item.encode() for item in value], dtype=np.object_)
    raise ValueError(f"output '{name}' is of type {type(value).__name__}, which is no tensor")


def to_tensor(tensor: Any, device: Any) -> Any:
    """Return a Tensor of the request as one of PyTorch; strings stay an array."""
    if not tensor.is_cpu():
        return torch.from_dlpack(tensor).to(device)
    try:
        array = tensor.as_numpy()
    except pb_utils.TritonModelException:  # a type that numpy lacks
        return torch.from_dlpack(tensor).to(device)
    if array.dtype.kind == "O":
        return array
    return torch.from_numpy(array).to(device)


def join(arrays: list[Any]) -> Any:
    return np.concatenate(arrays) if isinstance(arrays[0], np.ndarray) else torch.cat(arrays)
