"""Posts lines of the log to a collector, and counts what becomes of them. Blocks."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zmqtriton.otlp_destination import Destination
from zmqtriton_addons.otlp_logs.conversion import encode
from zmqtriton_addons.otlp_metrics.outages import Exporter
from zmqtriton_addons.tracing.posting import PostError

_log = logging.getLogger(__name__)

ACCEPTED, REFUSED, DROPPED = RESULTS = "accepted", "refused", "dropped"
#: Lines of one message.
_MAX_LINES = 512


class LogsExporter(Exporter):
    def __init__(
        self, destination: Destination, jitter: Callable[[], float] = random.random
    ) -> None:
        super().__init__("logs", "lines of the log", destination, jitter)
        self._resource = destination.resource
        #: Lines by result.
        self.lines: Counter[str] = Counter()
        #: The number of the last line that need not be sent again.
        self.after = 0

    def export(self, lines: Sequence[Mapping[str, Any]], within_s: float) -> float:
        """Post lines in order; return the pause before the rest, 0 if none is needed."""
        for begin in range(0, len(lines), _MAX_LINES):
            some = lines[begin : begin + _MAX_LINES]
            refused, reason = 0, ""
            try:
                count, reason = self.post(encode(some, self._resource), within_s)
                refused = min(max(0, count), len(some))
            except PostError as failure:
                pause_s = self.fail(str(failure), failure.is_retryable, failure.retry_after_s)
                if pause_s:
                    return pause_s
                self.lines[DROPPED] += len(some)
            except Exception as error:  # noqa: BLE001 - an edge: the next lines may be right
                _log.exception("lines of the log could not be exported")
                self.fail(str(error), False, 0.0)
                self.lines[DROPPED] += len(some)
            else:
                self.succeed(refused, reason)
                self.lines[REFUSED] += refused
                self.lines[ACCEPTED] += len(some) - refused
            self.after = some[-1]["number"]
        return 0.0
