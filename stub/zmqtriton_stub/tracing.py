"""The stub's reports about traced requests: the times of execute(), and tensors.

Called for traced requests only. Must never disturb an execution: facts that cannot be reported are
left out.
"""

from __future__ import annotations

import json
from typing import Any, Iterable

import numpy as np

from zmqtriton_floor import spans, wire
from zmqtriton_floor.datatypes import BY_NUMBER, BYTES
from zmqtriton_stub.api.callers import ServedRequest
from zmqtriton_stub.api.inference import InferenceRequest
from zmqtriton_stub.api.tensor import packed

#: Elements of a tensor that are shown; a datagram has its limits.
MAX_ELEMENTS = 1024
_MAX_CHARACTERS = 16 << 10


class StubTracing:
    """The reports of one stub."""

    def __init__(self, directory: str, *, has_contexts: bool) -> None:
        self.sender = spans.SpanSender(directory)
        #: Models may pass contexts on to OpenTelemetry.
        self.has_contexts = has_contexts

    def context_of(self, work: wire.BatchedRequest) -> tuple[str, int, str]:
        """Return span, flags and context for the model: see ServedRequest.trace_context()."""
        context = _context(work.trace) if self.has_contexts else ""
        return work.trace, work.flags & wire.TRACE_TENSORS, context

    def begun(self, requests: Iterable[InferenceRequest]) -> None:
        """Report requests before their execution: their ids and, if required, their inputs."""
        for request in requests:
            pending = request._pending
            if pending is not None and pending.work.trace:
                details: dict[str, Any] = {"request_id": request._request_id}
                if pending.work.flags & wire.TRACE_TENSORS:
                    details["tensors"] = _shown("TENSOR_QUEUE_INPUT", map(packed, request._inputs))
                self.sender.send(pending.work.trace, details)

    def answered(self, pending: ServedRequest, outputs: Iterable[wire.Tensor]) -> None:
        """Report the outputs of a response."""
        if pending.work.flags & wire.TRACE_TENSORS:
            self.sender.send(
                pending.work.trace, {"tensors": _shown("TENSOR_BACKEND_OUTPUT", outputs)}
            )

    def executed(self, batch: Iterable[ServedRequest], marks: list[tuple[str, int]]) -> None:
        """Report the times of an execution, when execute() or its coroutine has ended."""
        for pending in batch:
            if pending.work.trace:
                self.sender.send(pending.work.trace, {"marks": marks})


def _context(trace: str) -> str:
    """Return the context as OpenTelemetry's propagators read it."""
    traceparent, tracestate = spans.parts(trace)
    headers = {"traceparent": traceparent}
    if tracestate:
        headers["tracestate"] = tracestate
    return json.dumps(headers, separators=(",", ":"))


def _shown(activity: str, tensors: Iterable[wire.Tensor]) -> list[dict[str, Any]]:
    return [
        {
            "activity": activity,
            "name": row.name,
            "data": _elements(row),
            "shape": ",".join(map(str, row.shape)),
            "dtype": BY_NUMBER[row.datatype].name,
        }
        for row in tensors
    ]


def _elements(row: wire.Tensor) -> str:
    """Return the first elements, with commas; "" for data outside of this process's memory."""
    try:
        data = memoryview(row.data).cast("B")
    except TypeError:
        return ""
    if row.datatype == BYTES:
        return _strings(data)
    datatype = BY_NUMBER[row.datatype]
    if datatype.numpy is None:
        return ""
    count = min(len(data) // datatype.size, MAX_ELEMENTS)
    array = np.frombuffer(data[: count * datatype.size], datatype.numpy)
    return ",".join(f"{value:g}" if array.dtype.kind == "f" else str(int(value)) for value in array)


def _strings(data: memoryview) -> str:
    texts: list[str] = []
    at = length = 0
    while at + 4 <= len(data) and len(texts) < MAX_ELEMENTS and length < _MAX_CHARACTERS:
        size = int.from_bytes(data[at : at + 4], "little")
        kept = bytes(data[at + 4 : at + 4 + min(size, _MAX_CHARACTERS - length)])
        texts.append(kept.decode("utf-8", "backslashreplace"))
        length += len(kept)
        at += 4 + size
    return ",".join(texts)
