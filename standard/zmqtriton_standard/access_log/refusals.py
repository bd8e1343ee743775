"""Lines of requests without access, in each process that refuses some; figures of the log.

Imports nothing of inferences, so that the process of metrics remains small.
"""

from __future__ import annotations

import asyncio
import atexit
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import orjson

from zmqtriton.sdk.frontend import Gateway, bearer_tokens, refusals
from zmqtriton.sdk.lines.line import Line
from zmqtriton.sdk.lines.values import timestamp
from zmqtriton.sdk.process import local_service_path
from zmqtriton.sdk.wire import logs
from zmqtriton_standard.access_log.options import QUESTION, SERVICE
from zmqtriton_standard.metrics.services import Figures, at_socket

#: Maximum characters of a path in a line, since a client can send any length.
_MAX_ROUTE = 1000
#: The time between two lines with the number of a client's refusals that have no line.
_LEFT_OUT_EVERY_S = 10.0


class RefusalLog:
    """Writes the lines of one process: some about each client, and the number of all others.

    A client without a token may send any number of requests, and must not fill the disk.
    """

    def __init__(self, line: Line, clock: Callable[[], float] = time.monotonic) -> None:
        self._line = line
        self._clock = clock
        self._recent = bearer_tokens.FailureLimit()
        #: Refusals without a line, by address.
        self._left_out: Counter[str] = Counter()
        #: Writes the numbers of refusals that got no line; None while all got one.
        self._timer: asyncio.TimerHandle | None = None

    def turned_away(self, refusal: refusals.Refusal) -> None:
        """Write the line of a request without access, unless its client has had many."""
        source = refusal.source
        if self._recent.add(source.address, self._clock()).wait_s:
            is_full = len(self._left_out) >= bearer_tokens.FailureLimit.MAX_ADDRESSES
            is_counted = source.address in self._left_out or not is_full
            self._left_out[source.address if is_counted else "others"] += 1
            if self._timer is None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(_LEFT_OUT_EVERY_S, self.write_left_out)
                atexit.register(self.write_left_out)
            return
        document: dict[str, Any] = {"model": refusal.model} if refusal.model else {}
        if refusal.token:
            document["token"] = refusal.token
        add_source(document, source)
        document.update(status=refusal.code, error=refusal.text)
        send(self._line, document)

    def write_left_out(self) -> None:
        """Write the number of refusals without a line of each client."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            atexit.unregister(self.write_left_out)
        left_out, self._left_out = self._left_out, Counter()
        for client, count in left_out.items():
            send(self._line, {"client": client, "left_out": count})


def log_refusals(gateway: Gateway) -> Line:
    """Log the refusals of this process from now on; return the way to the log.

    A process may serve inferences and the page of metrics, and logs each refusal once.
    """
    return _line_to(local_service_path(gateway.settings.server.runtime_directory, SERVICE))


@cache
def _line_to(path: str) -> Line:
    line = Line(path)
    refusals.listeners.append(RefusalLog(line).turned_away)
    return line


def add_source(document: dict[str, Any], source: refusals.Source) -> None:
    if source.address:
        document["client"] = source.address
    document["protocol"] = source.protocol
    document["route"] = source.route[:_MAX_ROUTE]


def send(line: Line, document: dict[str, Any], begun_ns: int = 0) -> None:
    waited_ns = time.monotonic_ns() - begun_ns if begun_ns else 0
    document = {
        "time": timestamp(time.time() - waited_ns / 1e9),
        **document,
        "duration_ms": waited_ns / 1e6,
    }
    if not line.has_room(0):
        line.dropped += 1
        return
    if line.dropped:
        document["dropped"], line.dropped = line.dropped, 0
    text = orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)
    # its control characters are escaped already
    is_plain = text.isascii() and b"\x7f" not in text
    line.send(text if is_plain else logs.escape_lines(text.decode()).encode())


def metrics(gateway: Gateway) -> Figures:
    """Return the figures, which are asked of the log at each scrape."""
    log_refusals(gateway)
    return at_socket(gateway, SERVICE, QUESTION)
