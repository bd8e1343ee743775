"""InferenceRequest, and what the server is asked for it."""

from __future__ import annotations

import asyncio
import queue
from dataclasses import dataclass, field
from typing import Any

from zmqtriton.embedded import InferenceRequest as Question
from zmqtriton_addons.tritonserver.enums import RequestFlag
from zmqtriton_addons.tritonserver.errors import InvalidArgumentError
from zmqtriton_addons.tritonserver.memory import DeviceOrMemoryType
from zmqtriton_addons.tritonserver.tensor import Tensor
from zmqtriton_floor import wire

_PARAMETER_TYPES = (str, int, float, bool)


@dataclass
class InferenceRequest:
    """A request to a model, which may be sent several times."""

    model: Any
    request_id: str | None = None
    #: A sum of RequestFlag.
    flags: int = 0
    correlation_id: int | str | None = None
    priority: int = 0
    #: Microseconds.
    timeout: int = 0
    inputs: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, str | int | bool | float] = field(default_factory=dict)
    output_memory_type: DeviceOrMemoryType | None = None
    #: Gets each response, beside the iterator.
    response_queue: queue.SimpleQueue[Any] | asyncio.Queue[Any] | None = None
    _serialized_inputs: dict[str, Tensor] = field(init=False, default_factory=dict)
    _server: Any = field(init=False)

    def __post_init__(self) -> None:
        self._server = self.model._server


def question(request: InferenceRequest) -> Question:
    """Return the request as the server takes it. Raises InvalidArgumentError."""
    for value in request.parameters.values():
        if type(value) not in _PARAMETER_TYPES:
            raise InvalidArgumentError(
                f"Unsupported Value. Can't convert {type(value)} to Request Parameter"
            )
    flags = int(request.flags)
    return Question(
        {name: _tensor(name, value) for name, value in request.inputs.items()},
        request_id=request.request_id or "",
        parameters=request.parameters,
        priority=request.priority,
        timeout=request.timeout,
        correlation_id=0 if request.correlation_id is None else request.correlation_id,
        sequence_start=bool(flags & RequestFlag.SEQUENCE_START),
        sequence_end=bool(flags & RequestFlag.SEQUENCE_END),
    )


def _tensor(name: str, value: Any) -> wire.Tensor:
    tensor = Tensor.from_object(value)
    shape = [int(size) for size in tensor.shape]
    return wire.Tensor(name, tensor.data_type.value, shape, tensor.to_memory())
