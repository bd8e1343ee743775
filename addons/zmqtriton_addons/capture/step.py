"""The step of captured requests, in each frontend of a server with `--capture`."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any, NamedTuple

from zmqtriton_addons.capture import rates
from zmqtriton_addons.capture.frames import END, REQUEST, RESPONSE, SERVICE, Frame, encode, size_of
from zmqtriton_addons.capture.line import Line
from zmqtriton_floor.endpoints import local_service_path
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.signature import config_parameter
from zmqtriton_floor.wire import SEQUENCE_END, SEQUENCE_START, ResponseBody, Tensor
from zmqtriton_frontends.entrance import Ask
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.inference import (
    CheckedRequest,
    ModelVersion,
    RegionContents,
    Stages,
    now_ns,
)

#: Frames of one request are sent together, after its answer, up to this size.
_TOGETHER_BYTES = 16 << 10


class _Rules(NamedTuple):
    """The rules of one generation of a model."""

    sampler: rates.Sampler | None
    #: Names of tensors.
    omitted: frozenset[str]
    hashed: frozenset[str]


class Capture:
    """A step: begins the record of each request that is chosen."""

    def __init__(self, rows: tuple[rates.Rate, ...], line: Line) -> None:
        self._rates = rows
        self._line = line
        self._rules: dict[int, _Rules] = {}
        self._next_id = 0
        #: Requests by model that had no room, and are not told yet.
        self._dropped: Counter[str] = Counter()

    def __call__(self, ask: Ask, checked: CheckedRequest) -> CheckedRequest:
        model, options = checked.model, checked.options
        rules = self._rules.get(model.generation) or self._rules_of(model)
        is_start = bool(options.flags & SEQUENCE_START)
        if rules.sampler is None or not rules.sampler.takes(options.correlation, is_start=is_start):
            return checked
        inputs = [tensor for tensor in checked.body.inputs if tensor.name not in rules.omitted]
        if not self._line.has_room(sum(len(tensor.data) for tensor in inputs)):
            self._dropped[model.name] += 1
            return checked
        self._next_id += 1
        details = _details(ask, checked, rules)
        details["dropped"], self._dropped = self._dropped, Counter()
        begin = Frame(REQUEST, self._next_id, details, [_here(tensor) for tensor in inputs])
        stages = checked.stages
        if stages is None:
            stages = Stages(ask.begun_ns)
            checked = checked.with_stages(stages)
        begun_ns = ask.begun_ns or now_ns()
        record = _Record(self._line, self._next_id, begin, begun_ns, stages, rules.omitted)
        return checked.with_observer(record)

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


class _Record:
    """An observer, which sends frames: those of a small request all at once."""

    context = ""

    def __init__(
        self,
        line: Line,
        number: int,
        begin: Frame,
        begun_ns: int,
        stages: Stages,
        omitted: frozenset[str],
    ) -> None:
        """Set up with the frame of the request."""
        self._line = line
        #: What is not sent yet, with tensors of its own.
        self._frames: list[Frame] = []
        self._bytes = 0
        self._connection = line.connection
        self._id = number
        self._begun_ns = begun_ns
        self._stages = stages
        self._omitted = omitted
        self._error: tuple[str, str] | None = None
        self._is_cut = self._has_ended = False
        self._add(begin)

    def take(self, response: ResponseBody) -> None:
        outputs = [tensor for tensor in response.outputs if tensor.name not in self._omitted]
        if self._is_cut or not self._line.has_room(size_of(outputs)):
            self._is_cut = True
            return
        details = {
            "parameters": response.parameters,
            "after_ms": self._ms(),
            "omitted": [t.name for t in response.outputs if t.name in self._omitted],
        }
        self._add(Frame(RESPONSE, self._id, details, outputs))

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
            "stages": self._stages.durations(),
            "is_cut": self._is_cut,
        }
        self._frames.append(Frame(END, self._id, details))
        self._line.soon(self._send)

    def _add(self, frame: Frame) -> None:
        self._bytes += size_of(frame.tensors)
        if self._bytes > _TOGETHER_BYTES:
            self._frames.append(frame)
            self._send()
        else:
            self._frames.append(frame._replace(tensors=[_kept(t) for t in frame.tensors]))

    def _send(self) -> None:
        # another process has not seen the beginning
        if self._line.connection == self._connection:
            self._line.send(encode(self._frames))
        self._frames.clear()
        self._bytes = 0

    def _ms(self) -> float:
        return round((now_ns() - self._begun_ns) / 1e6, 3)


def capture(gateway: Gateway) -> Capture:
    """Make the step of a process."""
    server = gateway.settings.server
    options = dict(server.service_options)
    line = Line(local_service_path(server.runtime_directory, SERVICE))
    return Capture(rates.parse(json.loads(options[SERVICE])), line)


def _details(ask: Ask, checked: CheckedRequest, rules: _Rules) -> dict[str, Any]:
    body, options, model = checked.body, checked.options, checked.model
    parameters: dict[str, Any] = dict(body.parameters)
    if parameters and ask.spelled_headers is not None:
        for name, _ in ask.spelled_headers():
            parameters.pop(name, None)
    if options.correlation:
        parameters["sequence_id"] = options.correlation
        parameters["sequence_start"] = bool(options.flags & SEQUENCE_START)
        parameters["sequence_end"] = bool(options.flags & SEQUENCE_END)
    if options.priority:
        parameters["priority"] = options.priority
    if options.timeout_us:
        parameters["timeout"] = options.timeout_us
    waited_s = (now_ns() - ask.begun_ns) / 1e9 if ask.begun_ns else 0.0
    return {
        "time_s": time.time() - waited_s,
        "model": model.name,
        "version": model.version,
        "is_decoupled": model.signature.is_decoupled,
        "token": "" if ask.grant is None else ask.grant.name,
        "request_id": body.request_id,
        "parameters": parameters,
        "outputs": list(body.outputs),
        "omitted": [t.name for t in body.inputs if t.name in rules.omitted],
        "hashed": sorted(rules.hashed),
    }


def _here(tensor: Tensor) -> Tensor:
    """Return the tensor with its bytes, also if they lie in a client's memory."""
    if type(tensor.data) is RegionContents:
        return tensor._replace(data=tensor.data.read())
    return tensor


def _kept(tensor: Tensor) -> Tensor:
    """Return the tensor with bytes that nobody changes."""
    if tensor.data is None or type(tensor.data) is bytes:
        return tensor
    return tensor._replace(data=bytes(memoryview(tensor.data).cast("B")))


def _names(model: ModelVersion, key: str) -> frozenset[str]:
    return frozenset(map(str.strip, config_parameter(model.config, key).split(","))) - {""}
