"""The broker's part of a trace: which model had the request, and since when.

Called by `answers.py` at the end of each traced request, before its answer leaves. Requests that
are not traced cost a look at one field, which happens there.
"""

from __future__ import annotations

import time

from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton_floor import spans


class Traces:
    def __init__(self) -> None:
        self._sender: spans.Sender | None = None

    def begin(self, directory: str) -> None:
        """Note that there is a process to send spans to."""
        self._sender = spans.Sender(directory)

    def finished(self, request: InflightRequest, *, is_client: bool) -> None:
        if self._sender is None:
            return
        marks = [
            ("REQUEST_START", request.arrived_ns),
            ("QUEUE_START", request.arrived_ns),
            ("REQUEST_END", time.monotonic_ns()),
        ]
        generation = request.generation
        span = {
            "parent": spans.span_of(request.row.trace),
            "is_root": is_client,
            "model": generation.model,
            "version": generation.version,
            "executed": request.stub != 0,
            "marks": marks,
        }
        if request.error:
            span["error"] = request.error
        self._sender.send(request.trace, span)
