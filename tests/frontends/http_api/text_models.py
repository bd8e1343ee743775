"""Models of texts by their configurations, and what they answer."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.frontends.fake_gateway import tensor_config, version_info
from zmqtriton_floor.tensors import datatype_of, from_numpy
from zmqtriton_floor.wire import ResponseBody, Tensor, VersionInfo


def text_model(
    name: str = "text",
    inputs: tuple[tuple[str, str], ...] = (("text_input", "STRING"),),
    outputs: tuple[tuple[str, str], ...] = (("text_output", "STRING"),),
    parameters: dict[str, str] | None = None,
    **config: Any,
) -> VersionInfo:
    return version_info(
        name,
        input=[tensor_config(*one, [1], optional=True) for one in inputs],
        output=[tensor_config(*one, [-1]) for one in outputs],
        parameters={key: {"string_value": v} for key, v in (parameters or {}).items()},
        **config,
    )


def response(**outputs: Any) -> ResponseBody:
    """A response of lists of bytes, and of numbers."""
    return ResponseBody({}, [_tensor(name, values) for name, values in outputs.items()])


def _tensor(name: str, values: list[Any]) -> Tensor:
    kind: Any = np.object_ if values and isinstance(values[0], bytes) else None
    array = np.array(values, dtype=kind)
    return Tensor(name, datatype_of(array).number, list(array.shape), bytes(from_numpy(array)))
