"""The log of a server as records for a program's callback, from its lines of JSON."""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from datetime import datetime

from zmqtriton.sdk.wire import logs
from zmqtriton_extras.tritonserver.enums import LogLevel

#: Level, file, line, microseconds since 1970, and text.
Record = tuple[LogLevel, str, int, int, str]
LogCallback = Callable[[LogLevel, str, int, int, str], object]
_LEVELS = {
    "V": LogLevel.VERBOSE,
    "I": LogLevel.INFO,
    "W": LogLevel.WARN,
    "E": LogLevel.ERROR,
}


def begin_delivery(descriptor: int, callback: LogCallback) -> threading.Thread:
    """Start a thread that delivers the lines of a pipe, until the server has ended."""

    def run() -> None:
        with open(descriptor, encoding="utf-8", errors="replace") as lines:
            deliver(lines, callback)

    thread = threading.Thread(target=run, name="log", daemon=True)
    thread.start()
    return thread


def deliver(lines: Iterable[str], callback: LogCallback) -> None:
    """Call the callback for each record; print its errors."""
    for line in lines:
        record = parse(line)
        if record is None:
            # another program's, which does not know the log
            sys.stderr.write(line)
            continue
        try:
            callback(*record)
        except Exception:  # noqa: BLE001 - an edge: the program's, which needs later records
            traceback.print_exc()


def parse(line: str) -> Record | None:
    """Return the record of a line; None for another line."""
    try:
        document = json.loads(line)
        moment = datetime.fromisoformat(document["time"].replace("Z", "+00:00"))
        file, _, number = document["at"].rpartition(":")
        ids = document.get("request_ids") or [document.get("request_id", "")]
        text = f"{logs.name_requests(ids)}{document['text']}"
        time_us = round(moment.timestamp() * 1e6)
        return _LEVELS[document["level"]], file, int(number), time_us, text
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
