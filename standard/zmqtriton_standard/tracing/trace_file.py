"""Traces as Triton writes them: one JSON array, an object for each mark, numbers for spans.

The file is a whole document after each write, so that it can be read while the server runs. Only
the tracing process writes the file. If it cannot be written, OSError is raised, and the file is as
it was before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from zmqtriton_standard.tracing.gathering import RequestSpan

_END = b"]\n"
#: Activities about tensors come after this mark.
_INPUT_ACTIVITY = "TENSOR_QUEUE_INPUT"


class TraceFile:
    """Writes to `path`, or with a log frequency to `path.0`, `path.1` and so on."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._last_id = 0
        self._descriptor = -1
        #: Offset in the file for the next object, in bytes; 0 before the file exists.
        self._end_offset = 0
        #: Traces in this file, and how many numbered files there were.
        self._traces = 0
        self._files = 0
        self._is_numbered = False

    def store(self, trace: RequestSpan) -> None:
        self.write(_merge_levels(trace))

    def write(self, trace: RequestSpan) -> None:
        self._select_file(trace.log_frequency)
        text = ",".join(json.dumps(each, separators=(",", ":")) for each in self._objects(trace, 0))
        data = (b"," if self._end_offset > 1 else b"") + text.encode() + _END
        try:
            self._write_at(data, self._end_offset)
        except OSError:
            os.ftruncate(self._descriptor, self._end_offset)
            self._write_at(_END, self._end_offset)  # there is room, since as much was there before
            raise
        self._end_offset += len(data) - len(_END)
        self._traces += 1

    def close(self, within_s: float = 0.0) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _select_file(self, frequency: int) -> None:
        is_full = self._is_numbered and self._traces >= frequency
        if self._descriptor >= 0 and bool(frequency) == self._is_numbered and not is_full:
            return
        self.close()
        self._is_numbered = bool(frequency)
        path = self._path
        if frequency:
            path = f"{path}.{self._files}"
            self._files += 1
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        self._write_at(b"[" + _END, 0)
        self._end_offset, self._traces = 1, 0

    def _write_at(self, data: bytes, at: int) -> None:
        while data:
            written = os.pwrite(self._descriptor, data, at)
            data, at = data[written:], at + written

    def _objects(self, span: RequestSpan, parent: int) -> Iterator[dict[str, Any]]:
        """Return the objects of a span after the objects of the spans below it, which end first."""
        self._last_id = own = self._last_id + 1
        for child in sorted(span.children, key=lambda child: child.start_ns):
            yield from self._objects(child, own)
        header: dict[str, Any] = {
            "id": own,
            "model_name": span.model,
            "model_version": span.version,
        }
        if span.request_id:
            header["request_id"] = span.request_id
        if parent:
            header["parent_id"] = parent
        yield header
        tensors = list(span.tensors)
        for name, ns in sorted(span.marks.items(), key=lambda mark: mark[1]):
            if name == "INFER_RESPONSE_COMPLETE":
                yield from _take_activities(own, tensors, "")
            yield {"id": own, "timestamps": [{"name": name, "ns": ns}]}
            if name == "QUEUE_START":
                yield from _take_activities(own, tensors, _INPUT_ACTIVITY)
        yield from _take_activities(own, tensors, "")


def _merge_levels(root: RequestSpan) -> RequestSpan:
    """Merge the reports of frontend and broker about a request, which is one span for Triton."""
    for child in root.children:
        root.marks.update(child.marks)
        root.tensors += child.tensors
    root.children = [below for child in root.children for below in child.children]
    return root


def _take_activities(
    own: int, tensors: list[dict[str, Any]], activity: str
) -> Iterator[dict[str, Any]]:
    """Remove and return the objects of one activity, or of all."""
    for tensor in [t for t in tensors if activity in ("", t["activity"])]:
        tensors.remove(tensor)
        shown = {key: tensor[key] for key in ("name", "data", "shape", "dtype")}
        yield {"id": own, "activity": tensor["activity"], "tensor": shown}
