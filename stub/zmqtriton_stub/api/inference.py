"""The requests and responses of models. The sender of responses is in responses.py."""

from __future__ import annotations

import enum
import json
import operator
import threading
import time
from typing import Any, Iterable, NamedTuple, Sequence

from zmqtriton_floor import wire
from zmqtriton_stub.api.callers import ResponseSender, ServedRequest
from zmqtriton_stub.api.errors import TritonError, TritonModelException, text_of
from zmqtriton_stub.api.tensor import Tensor, received_tensor

TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2

#: The flags of a request that models see.
_SEQUENCE_FLAGS = wire.SEQUENCE_START | wire.SEQUENCE_END

_MISSING: Any = object()
_64_BITS = range(-(1 << 63), 1 << 63)

# Reentrant, for the destructors that the garbage collector may run meanwhile.
sender_lock = threading.RLock()


#: The module bls, which needs the classes of this one, and executes requests to other models.
bls: Any = None


class MemoryType(enum.Enum):
    """The memory that a calling model wants for the outputs of another model."""

    TRITONSERVER_MEMORY_GPU = 0
    TRITONSERVER_MEMORY_CPU = 1
    DEFAULT = 2

    def __int__(self) -> int:
        return self.value


TRITONSERVER_MEMORY_GPU = MemoryType.TRITONSERVER_MEMORY_GPU
TRITONSERVER_MEMORY_CPU = MemoryType.TRITONSERVER_MEMORY_CPU


class PreferredMemory:
    """A kind of memory and the number of its device."""

    __slots__ = ("device_id", "memory_type")

    def __init__(self, preferred_memory_type: MemoryType, preferred_device_id: int = 0) -> None:
        if not isinstance(preferred_memory_type, MemoryType):
            raise TypeError(
                "the preferred memory is TRITONSERVER_MEMORY_CPU or TRITONSERVER_MEMORY_GPU, got "
                f"{type(preferred_memory_type)}"
            )
        self.memory_type = preferred_memory_type
        self.device_id = operator.index(preferred_device_id)


class InferenceTrace:
    """The trace that a request belongs to, if any."""

    __slots__ = ("_context", "_flags", "_parent")

    def __init__(self, context: str = "") -> None:
        self._context = context
        #: The span above the requests that are made with it, and how it is traced.
        self._parent = ""
        self._flags = 0

    def get_context(self) -> str | None:
        """Return the trace's context for OpenTelemetry, as JSON; None without a trace."""
        return self._context or None


def check_parameters(parameters: Any) -> dict[str, Any]:
    """Return a copy of a model's parameters. Raises an error if they cannot be sent."""
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise TritonModelException(f"Expect parameters to have type dict, got {type(parameters)}")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(
                f"Expect parameters keys to have type str, found type {type(key)}"
            )
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException(
                f"Expect parameters values to have type bool/int/str, found type {type(value)}"
            )
    return dict(parameters)


def _text(value: Any) -> str:
    return text_of(value, "expected a str")


def _unsigned(value: Any, bits: int, what: str) -> int:
    """Return an integer of this number of bits.

    Raises TypeError for others, as arguments of C functions do.
    """
    return _integer(value, range(1 << bits), f"{what} must be an unsigned integer of {bits} bits")


def _integer(value: Any, allowed: range, text: str) -> int:
    number = operator.index(value)
    if number not in allowed:
        raise TypeError(f"{text}, got {number}")
    return number


def _correlation_id(value: Any) -> int | str:
    if not isinstance(value, (int, str)):
        raise TritonModelException("Correlation ID must be integer or string")
    if isinstance(value, int) and not 0 <= value < 1 << 64:
        raise RuntimeError(f"correlation_id must be an unsigned integer of 64 bits, got {value}")
    return int(value) if isinstance(value, int) else value


def _sequence(values: Any, what: str) -> list[Any]:
    """Return a list of the values of a list, a tuple or another sequence, but not of a text."""
    kind = type(values)
    is_sequence = hasattr(kind, "__getitem__") and hasattr(kind, "__len__")
    if not is_sequence or isinstance(values, (str, bytes, dict)):
        raise TypeError(f"{what} must be a list, got {kind}")
    return list(values)


def _instance_of(kind: Any, value: Any, what: str) -> Any:
    """Return the value. Raises TypeError unless it is None or of this kind."""
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{what} must be of type {kind.__name__}, got {type(value)}")
    return value


class _Arguments(NamedTuple):
    """The arguments of InferenceRequest(), by position or by name, in Triton's order."""

    request_id: str = ""
    correlation_id: int | str = 0
    inputs: Iterable[Tensor] = _MISSING
    requested_output_names: Iterable[str] = _MISSING
    model_name: str = _MISSING
    model_version: int = -1
    flags: int = 0
    timeout: int = 0
    preferred_memory: PreferredMemory | None = None
    trace: InferenceTrace | None = None
    parameters: dict[str, Any] | None = None


class InferenceRequest:
    """A request: one to this model, or one that it makes to another model."""

    __slots__ = (
        "__weakref__",
        "_correlation_id",
        "_flags",
        "_inputs",
        "_is_detached",
        "_model_name",
        "_model_version",
        "_outputs",
        "_parameters",
        "_pending",
        "_preferred_memory",
        "_request_id",
        "_sender",
        "_timeout",
        "_trace",
    )

    def __init__(self, *arguments: Any, **named: Any) -> None:
        try:
            fields = _Arguments(*arguments, **named)
        except TypeError as error:
            raise TypeError(f"InferenceRequest(): {error}") from None
        if (
            fields.inputs is _MISSING
            or fields.requested_output_names is _MISSING
            or fields.model_name is _MISSING
        ):
            raise TypeError(
                "InferenceRequest() needs inputs, requested_output_names and model_name"
            )
        self._request_id = _text(fields.request_id)
        if fields.correlation_id is None:
            raise TypeError("correlation_id must be an integer or a string, got None")
        self._inputs: list[Tensor] = _sequence(fields.inputs, "inputs")
        names = _sequence(fields.requested_output_names, "requested_output_names")
        self._outputs: Sequence[str] = [_text(name) for name in names]
        self._model_name = _text(fields.model_name)
        self._model_version = _integer(
            fields.model_version, _64_BITS, "model_version must be an integer of 64 bits"
        )
        self._flags = _unsigned(fields.flags, 32, "flags")
        self._timeout = _unsigned(fields.timeout, 64, "timeout")
        self._preferred_memory: PreferredMemory | None = _instance_of(
            PreferredMemory, fields.preferred_memory, "preferred_memory"
        )
        self._trace: InferenceTrace | None = _instance_of(InferenceTrace, fields.trace, "trace")
        self._parameters = check_parameters(fields.parameters)
        # Triton finds out after all types, and parameters
        self._correlation_id = _correlation_id(fields.correlation_id)
        self._is_detached = False
        self._pending: ServedRequest | None = None
        self._sender: ResponseSender | None = None
        what = f"for request with id '{self._request_id}' and model name '{self._model_name}'"
        if None in self._inputs:
            raise TritonModelException(f"Input tensor {what} should not be empty.")
        for tensor in self._inputs:
            if not isinstance(tensor, Tensor):
                raise TypeError(f"inputs must hold Tensor objects, found {type(tensor)}")
        if "" in self._outputs:
            raise TritonModelException(f"Requested output name {what} should not be empty.")

    def request_id(self) -> str:
        """Return the id that the client has given the request, or ""."""
        return self._request_id

    def correlation_id(self) -> int | str:
        """Return the id of the request's sequence; 0 without a sequence."""
        return self._correlation_id

    def inputs(self) -> list[Tensor]:
        """Return the input tensors of the request."""
        return self._inputs.copy()

    def requested_output_names(self) -> set[str]:
        """Return the outputs that the client named, or else all of the configuration."""
        if not self._outputs and self._pending is not None:
            return set(self._pending.requested_outputs)
        return set(self._outputs)

    def flags(self) -> int:
        """Return TRITONSERVER_REQUEST_FLAG_SEQUENCE_START, _END, both or 0."""
        return self._flags

    def set_flags(self, flags: int) -> None:
        """Set the flags of a request to another model."""
        self._flags = _unsigned(flags, 32, "flags")

    def timeout(self) -> int:
        """Return the microseconds that the request may wait in the queue; 0 is no limit."""
        return self._timeout

    def remaining_s(self) -> float | None:
        """Return the seconds until the client's deadline, at least 0; None without a deadline.

        Not in Triton's API, whose timeout() is for the queue alone.
        """
        deadline_ns = 0 if self._pending is None else self._pending.work.deadline_ns
        return max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9) if deadline_ns else None

    def detach(self) -> None:
        """Keep this BLS request running even if the requests that caused it are cancelled.

        Not in Triton's API, where all such requests keep running.
        """
        self._is_detached = True

    def parameters(self) -> str:
        """Return the request's parameters as a JSON object."""
        return _json(self._parameters)

    def trace(self) -> InferenceTrace:
        """Return the request's trace, to pass on to requests that are made for it."""
        if self._trace is None:
            self._trace = InferenceTrace()
            if self._pending is not None and self._pending.work.trace:
                trace = self._trace
                trace._parent, trace._flags, trace._context = self._pending.trace_context()
        return self._trace

    def set_release_flags(self, flags: int) -> None:
        """Let the request be executed again, with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE."""
        flags = _unsigned(flags, 32, "flags")
        if self._pending is not None:  # otherwise it is not this model's to release
            self._pending.wants_again = flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE

    def get_response_sender(self) -> ResponseSender:
        """Return the InferenceResponseSender that answers the request, from any thread."""
        if self._sender is None:
            if self._pending is None:
                raise TritonModelException(
                    "Unable to get the response sender of a request that this model has made."
                )
            # if there were two, dropping one would end the request
            with sender_lock:
                if self._sender is None:
                    self._sender = self._pending.make_sender()
        return self._sender

    def exec(self, decoupled: bool = False) -> Any:
        """Return the other model's response, or an iterator over its responses."""
        return bls.ask_stream(self) if decoupled else bls.ask(self)

    def async_exec(self, decoupled: bool = False) -> Any:
        """Return an awaitable for the result of exec()."""
        return bls.ask_async(self, decoupled)

    def progress(self, share: float) -> None:
        """Report the finished share, 0 to 1, to a client that follows the progress.

        Not in Triton's API. Does nothing for other clients, and in a fork of the model.
        """
        if self._pending is not None:
            self._pending.tell_progress(round(1000 * min(max(share, 0.0), 1.0)))

    def is_cancelled(self) -> bool:
        """Return whether the client no longer waits for the response."""
        return self._pending is not None and self._pending.is_cancelled_now()


class InferenceResponse:
    """A response: tensors and parameters, or an error."""

    __slots__ = ("__weakref__", "_error", "_output_tensors", "_parameters")

    def __init__(
        self,
        output_tensors: Iterable[Tensor] = (),
        error: TritonError | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        tensors = list(output_tensors)
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                if tensor is None:
                    raise TritonModelException(
                        "Output tensor for inference response should not be empty."
                    )
                raise TypeError(f"output_tensors must hold Tensor objects, found {type(tensor)}")
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"error must be a TritonError, got {type(error)}")
        self._output_tensors = tensors
        self._error = error
        self._parameters = check_parameters(parameters) if parameters else {}

    def output_tensors(self) -> list[Tensor]:
        """Return the output tensors of the response."""
        return self._output_tensors.copy()

    def has_error(self) -> bool:
        """Return whether the response is an error."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """Return the response's error, or None."""
        return self._error

    def parameters(self) -> str:
        """Return the response's parameters as a JSON object."""
        return _json(self._parameters)


def no_response(returned: Any) -> TritonModelException:
    """Return Triton's error for a value that execute() has returned instead of a response."""
    return TritonModelException(
        "Expected an 'InferenceResponse' object in the execute function return list, found type "
        f"'{type(returned)}'."
    )


def _json(parameters: Any) -> str:
    # as Triton writes it: some models compare the text
    return json.dumps(parameters, ensure_ascii=False, separators=(",", ":"))


def received(
    pending: ServedRequest,
    request_id: str,
    parameters: dict[str, Any],
    inputs: Iterable[wire.Tensor],
    _new: Any = InferenceRequest.__new__,
) -> InferenceRequest:
    """Return the request that arrived; InferenceRequest() itself is for models."""
    request: InferenceRequest = _new(InferenceRequest)
    _, _, _, flags, request._correlation_id, _, request._timeout, _, _ = pending.work
    request._flags = flags & _SEQUENCE_FLAGS
    request._request_id = request_id
    request._parameters = parameters
    request._outputs = pending.outputs
    request._inputs = list(map(received_tensor, inputs))
    request._model_name = ""
    request._model_version = -1
    request._trace = None
    request._pending = pending
    request._sender = None
    return request
