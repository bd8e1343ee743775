"""Reads a request of this process's own code: kinds and limits of its parts.

Nobody else would: what comes over a port is read where it comes in, and the broker ends the
connection of a frontend that sends it anything but a request. Raises InvalidArgument.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from zmqtriton.embedded.requests import InferenceRequest
from zmqtriton_floor.arrays import to_tensors
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.wire import SEQUENCE_END, SEQUENCE_START, RequestBody
from zmqtriton_frontends.inference.admission import Options, check_parameter_name

_MAX_SEQUENCE_ID = 128


def read_body(request: InferenceRequest, config: Mapping[str, Any]) -> RequestBody:
    """Return the body of a request to the model with this configuration."""
    for name in request.inputs:
        _text(name, "the name of an input")
    return RequestBody(
        _text(request.request_id, "request_id"),
        _parameters(request.parameters),
        _outputs(request.outputs),
        to_tensors(request.inputs, config),
    )


def read_options(request: InferenceRequest) -> Options:
    flags = SEQUENCE_START if request.sequence_start else 0
    flags |= SEQUENCE_END if request.sequence_end else 0
    correlation = request.correlation_id
    if not isinstance(correlation, str):
        correlation = _integer(correlation, "correlation_id")
    elif len(correlation) > _MAX_SEQUENCE_ID:
        raise InvalidArgument(
            f"string correlation ID cannot be longer than {_MAX_SEQUENCE_ID} characters"
        )
    priority, timeout = _integer(request.priority, "priority"), _integer(request.timeout, "timeout")
    return Options(flags, priority, timeout, 0, correlation)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} must be a string, got {type(value).__name__}")
    return value


def _integer(value: Any, what: str) -> int:
    try:
        return int(operator.index(value))
    except TypeError:
        kind = type(value).__name__
        raise InvalidArgument(f"{what} must be an integer, got {kind}") from None


def _parameters(parameters: Any) -> dict[str, Any]:
    if not isinstance(parameters, Mapping):
        raise InvalidArgument(f"parameters must be a dict, got {type(parameters).__name__}")
    for name, value in parameters.items():
        check_parameter_name(_text(name, "the name of a parameter"))
        if not isinstance(value, (bool, int, float, str)):
            raise InvalidArgument(
                f"parameter '{name}' must be an integer, a float, a boolean or a string, got "
                f"{type(value).__name__}"
            )
    return dict(parameters)


def _outputs(outputs: Any) -> list[str]:
    if isinstance(outputs, str) or not isinstance(outputs, Sequence):
        raise InvalidArgument(f"outputs must be a sequence of names, got {type(outputs).__name__}")
    names: dict[str, None] = {}
    for name in outputs:
        if _text(name, "the name of an output") in names:
            raise InvalidArgument(f"output '{name}' already exists in request")
        names[name] = None
    return list(names)
