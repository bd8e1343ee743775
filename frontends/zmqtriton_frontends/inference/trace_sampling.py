"""Chooses the requests that are traced, and reports when they came and were answered.

A request that is not traced costs a look at `is_on`. Reports are sent to the tracing process, and
dropped if it is too slow.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from zmqtriton_floor import spans, wire
from zmqtriton_floor.settings.codec import decode
from zmqtriton_floor.settings.tracing import Sampling, TracingSettings
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_frontends.inference.catalogue import HeaderLookup
from zmqtriton_frontends.inference.request_trace import Trace, now_ns
from zmqtriton_frontends.process.futures import Callbacks

#: A traceparent whose span becomes the parent; later versions may add to it.
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?![0-9a-f,])"
)
#: An entry of the tracestate, as W3C writes it; spaces around its commas do no harm.
_MEMBER = r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{1,256}"
_TRACESTATE = re.compile(rf"{_MEMBER}(,[ \t]*{_MEMBER}){{0,31}}")
_MAX_STATE = 512


class Parent(NamedTuple):
    """The span that a client has begun."""

    traceparent: str
    tracestate: str = ""


class Traces:
    def __init__(self) -> None:
        #: Any request may be traced.
        self.is_on = False
        self._is_given = False
        #: The choice for each model, or "" for all others, under which requests are counted here.
        self._choices: dict[str, Sampling] = {}
        self._seen: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self._sender = spans.SpanSender("")
        #: Called when `is_on` may have changed.
        self.on_change = Callbacks()

    def begin(self, directory: str, tracing: TracingSettings) -> None:
        self._sender = spans.SpanSender(directory)
        self._follow(tracing)

    def change(self, document: str) -> None:
        """Apply the settings of a wire.TraceSettings."""
        self._follow(decode(TracingSettings, document))

    def _follow(self, tracing: TracingSettings) -> None:
        self._is_given = tracing.mode == "opentelemetry"
        before = self._choices
        self._choices = {sampling.model: sampling for sampling in tracing.models}
        self.is_on = any(choice.levels for choice in self._choices.values())
        self.on_change()
        counters = {choice.counter for choice in self._choices.values()}
        self._seen = {
            model: self._seen[model] if before.get(model) == choice else 0
            for model, choice in self._choices.items()
        }
        self._taken = {counter: self._taken.get(counter, 0) for counter in counters}

    def end(self) -> None:
        """Close, and send the reports up to now."""
        self._sender.close()

    def follow(
        self, checked: CheckedRequest, parent: Parent | None, received: tuple[str, int]
    ) -> CheckedRequest:
        """Return the request for the broker, with its trace; call this only while is_on.

        `received` has the name of the receiving stage, and when it began.
        """
        model = checked.model
        choice = self._choices.get(model.name) or self._choices.get("")
        if choice is None or not choice.levels:
            return checked
        above = self._client_span(parent)
        if above:
            context = spans.among(above)
        elif self._is_due(choice):
            self._taken[choice.counter] += 1
            context = spans.new()
        else:
            return checked
        span = {
            "root": choice.counter,
            "count": -1 if above else choice.max_traces,
            "log_frequency": choice.log_frequency,
            "parent": spans.span_of(above),
            "model": model.name,
            "version": model.version,
            "request_id": checked.body.request_id,
            "marks": [(f"{received[0]}_START", received[1]), (f"{received[0]}_END", now_ns())],
        }
        if "TENSORS" in choice.levels and not self._is_given:
            flags = checked.options.flags | wire.TRACE_TENSORS
            checked = checked._replace(options=checked.options._replace(flags=flags))
        return checked.with_observer(Trace(self._sender, context, span))

    def _client_span(self, parent: Parent | None) -> str:
        """Return the name of the client's span; "" without a valid one."""
        if parent is None or not self._is_given:
            return ""
        match = _TRACEPARENT.match(parent.traceparent)
        return "" if match is None else spans.named(match[0], _state(parent.tracestate))

    def _is_due(self, choice: Sampling) -> bool:
        if not choice.rate or 0 <= choice.max_traces <= self._taken[choice.counter]:
            return False
        self._seen[choice.model] += 1
        return self._seen[choice.model] % choice.rate == 0


def parent_in(header: HeaderLookup) -> Parent | None:
    """Return the parent that headers name. A header that was sent twice has a comma in it."""
    traceparent = header(b"traceparent")
    return None if traceparent is None else Parent(traceparent, header(b"tracestate") or "")


def _state(text: str) -> str:
    """Return the tracestate; "" if it is malformed, which must not cost the trace."""
    state = text.strip(" \t")
    return state if len(state) <= _MAX_STATE and _TRACESTATE.fullmatch(state) else ""
