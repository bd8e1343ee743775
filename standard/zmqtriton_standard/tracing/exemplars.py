"""The last traced request of each bucket of a model's latencies, for the page of metrics.

The page reads a socket in the runtime directory at each scrape; there is a tracing process only if
requests may be traced.
"""

from __future__ import annotations

import json
import os
import socket
from bisect import bisect_left
from contextlib import suppress

from zmqtriton.sdk.wire import metrics
from zmqtriton_standard.tracing.gathering import RequestSpan

#: The name of the socket at which the page of metrics reads exemplars.
EXEMPLARS = "exemplars"
#: Maximum number of versions with exemplars; beyond it the one that was traced first is dropped.
_MAX_VERSIONS = 1000
#: The limit for a page that does not read.
_WITHIN_S = 1.0
_BEGIN, _END = "REQUEST_START", "REQUEST_END"
_TRACE = slice(3, 35)

#: A model, its version, seconds, the ids of trace and span, and the time.
Row = tuple[str, int, float, str, str, float]


class Exemplars:
    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], dict[int, Row]] = {}

    def add(self, trace: RequestSpan, offset_ns: int) -> None:
        """Add a trace's successful requests; the offset turns its times into wall-clock times."""
        above = [trace]
        while above:
            span = above.pop()
            above += span.children
            begin_ns, end_ns = span.marks.get(_BEGIN), span.marks.get(_END)
            if begin_ns is None or end_ns is None or span.error or not span.model:
                continue
            seconds = max(0, end_ns - begin_ns) / 1e9
            ids = span.trace_context[_TRACE], span.id
            of_version = self._rows.setdefault((span.model, span.version), {})
            of_version[bisect_left(metrics.REQUEST_BOUNDS_S, seconds)] = (
                span.model,
                span.version,
                seconds,
                *ids,
                (offset_ns + end_ns) / 1e9,
            )
            if len(self._rows) > _MAX_VERSIONS:
                del self._rows[next(iter(self._rows))]

    def rows(self) -> list[Row]:
        return [row for of_version in self._rows.values() for row in of_version.values()]


class ExemplarSocket:
    """The socket that sends the rows to each connection."""

    def __init__(self, path: str, exemplars: Exemplars) -> None:
        self._path = path
        self._exemplars = exemplars
        with suppress(FileNotFoundError):
            os.unlink(path)  # an earlier process's
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.setblocking(False)
        self.listener.bind(path)
        self.listener.listen()

    def answer(self) -> None:
        """Answer all waiting connections."""
        with suppress(OSError):  # none is left, or the page is gone
            while True:
                connection, _ = self.listener.accept()
                with connection:
                    connection.settimeout(_WITHIN_S)
                    connection.sendall(json.dumps(self._exemplars.rows()).encode())

    def close(self) -> None:
        self.listener.close()
        with suppress(OSError):  # the directory is gone
            os.unlink(self._path)
