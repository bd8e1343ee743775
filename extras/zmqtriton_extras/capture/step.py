"""The step that captures requests, in each frontend of a server with `--capture`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from zmqtriton.sdk.frontend import (
    Ask,
    CheckedRequest,
    Gateway,
    ModelVersion,
    RegionContents,
    Stages,
    admission,
    now_ns,
)
from zmqtriton.sdk.lines.line import Line
from zmqtriton.sdk.lines.values import size_of
from zmqtriton.sdk.models import config_parameter
from zmqtriton.sdk.process import local_service_path
from zmqtriton.sdk.wire import ZmqTritonError, wire
from zmqtriton_extras.capture import rates
from zmqtriton_extras.capture.frames import END, REQUEST, RESPONSE, SERVICE, Frame, encode

#: Frames of one request are sent together, after its answer, up to this size.
_TOGETHER_BYTES = 16 << 10
#: The least size of a frame, without tensors.
_FRAME_BYTES = 256


class _Rules(NamedTuple):
    """The rules of one generation of a model."""

    sampler: rates.Sampler | None
    #: Names of tensors.
    omitted: frozenset[str]
    hashed: frozenset[str]


class Capture:
    """A step: begins the record of each chosen request."""

    def __init__(self, rows: tuple[rates.Rate, ...], line: Line) -> None:
        self._rates = rows
        self._line = line
        self._rules: dict[int, _Rules] = {}
        self._next_id = 0
        #: Requests by model that had no room, and are not told yet.
        self._dropped: Counter[str] = Counter()

    def __call__(self, ask: Ask, checked: CheckedRequest) -> CheckedRequest:
        model, options, body = checked.model, checked.options, checked.body
        rules = self._rules.get(model.generation) or self._rules_of(model)
        is_start = bool(options.flags & wire.SEQUENCE_START)
        if rules.sampler is None or not rules.sampler.takes(options.correlation, is_start=is_start):
            return checked
        inputs: Sequence[wire.Tensor] = body.inputs
        if rules.omitted:
            inputs = [tensor for tensor in inputs if tensor.name not in rules.omitted]
        size = sum(len(tensor.data) for tensor in inputs)
        if not self._line.has_room(size):
            self._dropped[model.name] += 1
            return checked
        self._next_id += 1
        dropped, self._dropped = self._dropped, Counter()
        stages = checked.stages
        if stages is None:
            stages = Stages(ask.begun_ns)
            checked = checked.with_stages(stages)
        head = _Head(
            self._next_id,
            rules,
            stages,
            model,
            options,
            body.request_id,
            _parameters(ask, body.parameters) if body.parameters else {},
            body.outputs,
            [tensor.name for tensor in body.inputs if tensor.name in rules.omitted],
            "" if ask.grant is None else ask.grant.name,
            ask.begun_ns or now_ns(),
            dropped,
        )
        record = _Record(self._line, head, inputs, size, self._lose)
        return checked.with_observer(record)

    def _lose(self, lost: Counter[str]) -> None:
        """Count requests whose process ended before it had their records."""
        self._dropped += lost

    def _rules_of(self, model: ModelVersion) -> _Rules:
        rate = next((rate for rate in self._rates if rate.is_for(model.name)), None)
        rules = _Rules(
            None if rate is None else rates.Sampler(rate),
            _names(model, "CAPTURE_OMIT"),
            _names(model, "CAPTURE_HASH"),
        )
        if len(self._rules) > 10_000:  # generations of a server that reloads for ever
            self._rules.clear()
        self._rules[model.generation] = rules
        return rules


class _Head(NamedTuple):
    """The facts about a request at its beginning, without its tensors."""

    number: int
    rules: _Rules
    stages: Stages
    model: ModelVersion
    options: admission.SchedulingOptions
    request_id: str
    parameters: dict[str, Any]
    outputs: Sequence[str]
    omitted: list[str]
    token: str
    begun_ns: int
    dropped: Counter[str]

    def details(self) -> dict[str, Any]:
        model, options, parameters = self.model, self.options, self.parameters
        if options.correlation:
            parameters["sequence_id"] = options.correlation
            parameters["sequence_start"] = bool(options.flags & wire.SEQUENCE_START)
            parameters["sequence_end"] = bool(options.flags & wire.SEQUENCE_END)
        if options.priority:
            parameters["priority"] = options.priority
        if options.timeout_us:
            parameters["timeout"] = options.timeout_us
        return {
            "time_s": time.time() - (now_ns() - self.begun_ns) / 1e9,
            "model": model.name,
            "version": model.version,
            "is_decoupled": model.signature.is_decoupled,
            "token": self.token,
            "request_id": self.request_id,
            "parameters": parameters,
            "outputs": list(self.outputs),
            "omitted": self.omitted,
            "hashed": sorted(self.rules.hashed),
            "dropped": self.dropped,
        }


class _Record:
    """An observer that sends frames; a small request's frames go together, after its response."""

    __slots__ = (
        "_bytes",
        "_connection",
        "_error",
        "_frames",
        "_has_ended",
        "_head",
        "_inputs",
        "_is_cut",
        "_line",
        "_lose",
    )
    context = ""

    def __init__(
        self,
        line: Line,
        head: _Head,
        inputs: Sequence[wire.Tensor],
        size: int,
        lose: Callable[[Counter[str]], None],
    ) -> None:
        """Set up with the tensors of the request, and their size; `lose` counts lost requests."""
        self._lose = lose
        self._line, self._connection = line, line.connection
        self._head = head
        self._error: tuple[str, str] | None = None
        self._is_cut = self._has_ended = False
        #: Frames to be sent, and the size of all of these.
        self._frames: list[Frame] = []
        self._bytes = size
        is_large = size > _TOGETHER_BYTES
        #: The tensors of the request; None once they are sent.
        self._inputs: list[wire.Tensor] | None = [*map(_here if is_large else _kept, inputs)]
        if is_large:
            self._send()

    def take(self, response: wire.ResponseBody) -> None:
        outputs, omitted = response.outputs, self._head.rules.omitted
        if omitted:
            outputs = [tensor for tensor in outputs if tensor.name not in omitted]
        size = size_of(outputs)
        if self._is_cut or not self._line.has_room(size):
            self._is_cut = True
            return
        details = {
            "parameters": response.parameters,
            "after_ms": self._ms(),
            "omitted": [t.name for t in response.outputs if t.name in omitted],
        }
        self._bytes += size + _FRAME_BYTES
        is_large = self._bytes > _TOGETHER_BYTES
        if not is_large:
            outputs = [*map(_kept, outputs)]
        self._frames.append(Frame(RESPONSE, self._head.number, details, outputs))
        if is_large:
            self._send()

    def fail(self, error: Exception) -> None:
        code = error.code if isinstance(error, ZmqTritonError) else ZmqTritonError.code
        self._error = code, str(error)

    def end(self, sending: str) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        details = {
            "error": self._error,
            "duration_ms": self._ms(),
            "stages": self._head.stages.durations(),
            "is_cut": self._is_cut,
        }
        self._frames.append(Frame(END, self._head.number, details))
        self._line.soon(self._send)

    def _send(self) -> None:
        frames, head = self._frames, self._head
        lost = Counter([head.model.name])
        if self._inputs is not None:
            frames.insert(0, Frame(REQUEST, head.number, head.details(), self._inputs))
            self._inputs = None
            self._connection = self._line.connection  # no earlier process has a part of it
            lost += head.dropped
        lose = partial(self._lose, lost) if frames[-1].kind == END else None
        # another process has not seen the beginning
        if self._line.connection == self._connection:
            self._line.send(encode(frames), lose)
        elif lose is not None:
            lose()
        frames.clear()
        self._bytes = 0

    def _ms(self) -> float:
        return round((now_ns() - self._head.begun_ns) / 1e6, 3)


def capture(gateway: Gateway) -> Capture:
    """Make the step of a process."""
    line = Line(local_service_path(gateway.settings.server.runtime_directory, SERVICE))
    return Capture(rates.parse(gateway.settings.option(SERVICE)), line)


def _parameters(ask: Ask, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that are the request's own, without headers."""
    headers = set() if ask.spelled_headers is None else {name for name, _ in ask.spelled_headers()}
    return {name: value for name, value in parameters.items() if name not in headers}


def _here(tensor: wire.Tensor) -> wire.Tensor:
    """Return the tensor with its bytes, also if they lie in a client's memory."""
    if type(tensor.data) is RegionContents:
        return tensor._replace(data=tensor.data.read())
    return tensor


def _kept(tensor: wire.Tensor) -> wire.Tensor:
    """Return the tensor with a copy of its bytes if they may change."""
    name, datatype, shape, data = tensor = _here(tensor)
    if data is not None and not len(data) and 0 not in shape:
        data = None  # an output of a stream that was written to a client's memory
    if data is None or type(data) is bytes:
        return wire.Tensor(name, datatype, shape, data)
    return wire.Tensor(name, datatype, shape, bytes(memoryview(data).cast("B")))


def _names(model: ModelVersion, key: str) -> frozenset[str]:
    return frozenset(map(str.strip, config_parameter(model.config, key).split(","))) - {""}
