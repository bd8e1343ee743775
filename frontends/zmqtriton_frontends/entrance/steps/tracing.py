"""Begins the trace of each request that is to have one. A step only while some are traced."""

from __future__ import annotations

from zmqtriton_frontends.entrance.ask import Ask
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_frontends.inference.trace_sampling import Traces, parent_in


class Tracing:
    def __init__(self, traces: Traces, received: str) -> None:
        """Set up; `received` is the name of a request's arrival."""
        self._traces = traces
        self._received = received

    def __call__(self, ask: Ask, checked: CheckedRequest) -> CheckedRequest:
        parent = None if ask.header is None else parent_in(ask.header)
        return self._traces.follow(checked, parent, (self._received, ask.begun_ns))
