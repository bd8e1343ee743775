"""Requests and responses as users see them, whichever way leads to the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from zmqtriton_floor.errors import ZmqTritonError


class InferenceResponse(NamedTuple):
    """One response of a model."""

    model: str
    version: int
    request_id: str
    #: numpy arrays by name.
    outputs: Mapping[str, Any]
    parameters: Mapping[str, Any]
    #: An error in place of outputs; only a decoupled model sends one and goes on.
    error: ZmqTritonError | None
    #: True if no other response follows.
    final: bool


class InferenceRequest(NamedTuple):
    """A request to a model; `create_request` makes one."""

    inputs: Mapping[str, Any]
    request_id: str = ""
    #: The wanted outputs; none means all.
    outputs: Sequence[str] = ()
    parameters: Mapping[str, Any] = {}
    priority: int = 0
    #: Maximum time that the request waits for the model, in microseconds; 0: the model's default.
    timeout: int = 0
    #: Id of the sequence that the request is part of; 0 or "": none.
    correlation_id: int | str = 0
    sequence_start: bool = False
    sequence_end: bool = False
    #: Maximum time for the request and all its responses, in seconds; then it is cancelled.
    deadline_s: float | None = None


def merged(
    request: InferenceRequest | None, inputs: Mapping[str, Any] | None, options: dict[str, Any]
) -> InferenceRequest:
    """Return a request with these inputs and options in place of its own."""
    if request is None:
        return InferenceRequest(inputs or {}, **options)
    if inputs is not None:
        options["inputs"] = inputs
    return request._replace(**options)
