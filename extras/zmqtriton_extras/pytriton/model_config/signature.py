"""Makes the full configuration of a model from the user's bind(): names, instances, types.

`datatype` and `numpy_type` translate between numpy's types and config.pbtxt's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zmqtriton.sdk.wire import datatypes
from zmqtriton_extras.pytriton.exceptions import PyTritonBadParameterError, PyTritonModelConfigError
from zmqtriton_extras.pytriton.model_config.common import DeviceKind
from zmqtriton_extras.pytriton.model_config.model_config import ModelConfig
from zmqtriton_extras.pytriton.model_config.tensor import Tensor
from zmqtriton_extras.pytriton.model_config.triton_model_config import (
    ResponseCache,
    TensorSpec,
    TritonModelConfig,
)

_STRING = "TYPE_STRING"
#: numpy's types of byte strings; unicode is not one of them.
_STRING_TYPES = (np.object_, np.bytes_)


def describe_model(
    model_name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    config: ModelConfig,
    *,
    model_version: int = 1,
    instances: int = 1,
    parameters: Mapping[str, str] | None = None,
) -> TritonModelConfig:
    """Return the full configuration, without the warm-up, which this process runs itself."""
    return TritonModelConfig(
        model_name=model_name,
        model_version=model_version,
        max_batch_size=config.max_batch_size,
        batching=config.batching,
        batcher=config.batcher,
        instance_group={DeviceKind.KIND_CPU: instances},
        decoupled=config.decoupled,
        backend_parameters=dict(parameters or {}),
        inputs=list(_specifications(inputs, "INPUT")),
        outputs=list(_specifications(outputs, "OUTPUT")),
        response_cache=ResponseCache(enable=True) if config.response_cache else None,
    )


def _specifications(tensors: Sequence[Tensor], noun: str) -> Iterator[TensorSpec]:
    for number, tensor in enumerate(tensors, 1):
        name = tensor.name or f"{noun}_{number}"
        yield TensorSpec(name, tensor.shape, tensor.dtype, tensor.optional)


def datatype(dtype: Any) -> str:
    """Return the datatype in config.pbtxt of a type of numpy's."""
    try:
        kind = np.dtype(dtype).type
    except TypeError:
        raise PyTritonBadParameterError(f"{dtype!r} is not a type of NumPy's.") from None
    if kind in _STRING_TYPES:
        return _STRING
    for entry in datatypes.BY_NAME.values():
        if entry.numpy is kind:
            return entry.config_name
    advice = " Use bytes for text." if kind is np.str_ else ""
    raise PyTritonBadParameterError(f"Tensors cannot have the type {kind.__name__}.{advice}")


def numpy_type(config_name: str | None, where: str) -> Any:
    """Return numpy's type for a datatype in config.pbtxt. Raises PyTritonModelConfigError."""
    if not config_name:
        raise PyTritonModelConfigError(f"Data type for {where} not defined.")
    if config_name.count("_") != 1:
        raise PyTritonModelConfigError(
            f"Invalid data type `{config_name}` for {where} not defined. "
            "The expected name is TYPE_{type}."
        )
    if config_name == _STRING:
        return np.bytes_
    entry = datatypes.BY_CONFIG_NAME.get(config_name)
    if entry is None:
        raise PyTritonModelConfigError(f"Unsupported data type `{config_name}` for {where}")
    if entry.numpy is None:
        return np.float32
    return np.dtype(bool) if entry.numpy is np.bool_ else entry.numpy
