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
from zmqtriton_addons.tracing import otlp
from zmqtriton_addons.tracing.posting import Poster, PostError
from zmqtriton_floor import __version__

_log = logging.getLogger(__name__)

#: The pause before the next page in an outage: the first one, and the longest that we choose.
PAUSE_S, MAX_PAUSE_S = 1.0, 30.0
#: The longest one that a collector may ask for.
_MAX_RETRY_AFTER_S = 300.0
#: Pauses are longer by up to this share, so that servers do not come back at once.
_JITTER = 0.2

ACCEPTED, PARTLY, FAILED = RESULTS = "accepted", "partly", "failed"


class MetricsExporter:
    def __init__(
        self, destination: Destination, jitter: Callable[[], float] = random.random
    ) -> None:
        self._public_url = destination.public_url
        headers = {
            "Content-Type": "application/x-protobuf",
            "User-Agent": f"OTel-OTLP-Exporter-zmqtriton/{__version__}",
            **destination.headers,
        }
        self._post = Poster(destination.url, headers, destination.tls)
        self._converter = MetricsConverter(destination.resource)
        self._jitter = jitter
        #: The pause before the next page in an outage; 0 without one.
        self._pause_s = 0.0
        self._warned_of_refusal = False
        #: Pages by result, and points that the collector has not taken of pages that it took.
        self.pages: Counter[str] = Counter()
        self.refused_points = 0

    def export(self, page: str, now_ns: int, within_s: float) -> float:
        """Post a page of this time; return the pause before the next, 0 if none is needed."""
        refused, reason = 0, ""
        try:
            for data, points in self._converter.convert(exposition.parse(page), now_ns):
                count, why = _parse_rejected(self._post(data, within_s))
                refused += min(max(0, count), points)
                reason = why or reason
        except PostError as failure:
            return self._fail(str(failure), failure.is_retryable, failure.retry_after_s)
        except Exception as error:  # noqa: BLE001 - an edge: the next page may be right
            _log.exception("a page of metrics could not be exported")
            return self._fail(str(error), False, 0.0)
        self._converter.accepted()
        self._succeed(refused, reason)
        return 0.0

    def _fail(self, reason: str, is_retryable: bool, retry_after_s: float) -> float:
        self.pages[FAILED] += 1
        if not self._pause_s:
            _log.warning("metrics cannot be pushed to %s: %s", self._public_url, reason)
        self._pause_s = min(max(PAUSE_S, self._pause_s * 2), MAX_PAUSE_S)
        if not is_retryable:
            return 0.0  # what will never be taken needs no haste
        pause_s = max(self._pause_s, min(retry_after_s, _MAX_RETRY_AFTER_S))
        return pause_s * (1 + _JITTER * self._jitter())

    def _succeed(self, refused: int, reason: str) -> None:
        self.pages[PARTLY if refused else ACCEPTED] += 1
        self.refused_points += refused
        if self._pause_s:
            _log.info("metrics are pushed to %s again", self._public_url)
        self._pause_s = 0.0
        if refused and not self._warned_of_refusal:
            text = "%s does not take %d points of metrics: %s"
            _log.warning(text, self._public_url, refused, reason)
        self._warned_of_refusal = bool(refused)


def _parse_rejected(answer: bytes) -> tuple[int, str]:
    try:
        return otlp.parse_rejected(answer)
    except ValueError:
        return 0, ""  # some answer in plain text, whatever it was sent
