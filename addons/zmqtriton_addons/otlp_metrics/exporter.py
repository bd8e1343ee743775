"""Posts pages of metrics to a collector, one at a time, and judges its answers. Blocks.

A page that was not accepted is not kept: the next one has newer values of the same sums. So nothing
waits in memory but the page that is being sent, and a slow collector gets fewer of them.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable

from zmqtriton.otlp_destination import Destination
from zmqtriton_addons.otlp_metrics import exposition
from zmqtriton_addons.otlp_metrics.conversion import MetricsConverter
from zmqtriton_addons.otlp_metrics.outages import Exporter
from zmqtriton_addons.tracing.posting import PostError

_log = logging.getLogger(__name__)

ACCEPTED, PARTLY, FAILED = RESULTS = "accepted", "partly", "failed"


class MetricsExporter(Exporter):
    def __init__(
        self, destination: Destination, jitter: Callable[[], float] = random.random
    ) -> None:
        super().__init__("metrics", "points of metrics", destination, jitter)
        self._converter = MetricsConverter(destination.resource)
        #: Pages by result, and points that the collector has not taken of pages that it took.
        self.pages: Counter[str] = Counter()
        self.refused_points = 0

    def export(self, page: str, now_ns: int, within_s: float) -> float:
        """Post a page of this time; return the pause before the next, 0 if none is needed."""
        refused, reason = 0, ""
        try:
            for data, points in self._converter.convert(exposition.parse(page), now_ns):
                count, why = self.post(data, within_s)
                refused += min(max(0, count), points)
                reason = why or reason
        except PostError as failure:
            self.pages[FAILED] += 1
            return self.fail(str(failure), failure.is_retryable, failure.retry_after_s)
        except Exception as error:  # noqa: BLE001 - an edge: the next page may be right
            _log.exception("a page of metrics could not be exported")
            self.pages[FAILED] += 1
            return self.fail(str(error), False, 0.0)
        self._converter.accepted()
        self.pages[PARTLY if refused else ACCEPTED] += 1
        self.refused_points += refused
        self.succeed(refused, reason)
        return 0.0
