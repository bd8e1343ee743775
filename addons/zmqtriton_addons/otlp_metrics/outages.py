"""Posts messages to a collector; the log tells of the begin and the end of an outage. Blocks."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from zmqtriton.otlp_destination import Destination
from zmqtriton_addons.tracing import otlp
from zmqtriton_addons.tracing.posting import Poster
from zmqtriton_floor import __version__

_log = logging.getLogger(__name__)

#: The pause before the next message in an outage: the first one, and the longest that we choose.
PAUSE_S, MAX_PAUSE_S = 1.0, 30.0
#: The longest one that a collector may ask for.
_MAX_RETRY_AFTER_S = 300.0
#: Pauses are longer by up to this share, so that servers do not come back at once.
_JITTER = 0.2


class Exporter:
    def __init__(
        self,
        what: str,
        parts: str,
        destination: Destination,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Set up; `what` and its `parts` are words for the log."""
        self._what = what
        self._parts = parts
        self._public_url = destination.public_url
        headers = {
            "Content-Type": "application/x-protobuf",
            "User-Agent": f"OTel-OTLP-Exporter-zmqtriton/{__version__}",
            **destination.headers,
        }
        self._post = Poster(destination.url, headers, destination.tls)
        self._jitter = jitter
        #: The pause before the next message in an outage; 0 without one.
        self._pause_s = 0.0
        self._warned_of_refusal = False

    def post(self, data: bytes, within_s: float) -> tuple[int, str]:
        """Post a message; return how many of its parts were refused, and why. Raises PostError."""
        answer = self._post(data, within_s)
        try:
            return otlp.parse_rejected(answer)
        except ValueError:
            return 0, ""  # some answer in plain text, whatever it was sent

    def fail(self, reason: str, is_retryable: bool, retry_after_s: float) -> float:
        """Note a failure; return the pause before the same or the next message, 0 for none."""
        if not self._pause_s:
            _log.warning("%s cannot be pushed to %s: %s", self._what, self._public_url, reason)
        self._pause_s = min(max(PAUSE_S, self._pause_s * 2), MAX_PAUSE_S)
        if not is_retryable:
            return 0.0  # what will never be taken needs no haste
        pause_s = max(self._pause_s, min(retry_after_s, _MAX_RETRY_AFTER_S))
        return pause_s * (1 + _JITTER * self._jitter())

    def succeed(self, refused: int, reason: str) -> None:
        """Note a message that was taken, but for refused parts."""
        if self._pause_s:
            _log.info("%s are pushed to %s again", self._what, self._public_url)
        self._pause_s = 0.0
        if refused and not self._warned_of_refusal:
            text = "%s does not take %d %s: %s"
            _log.warning(text, self._public_url, refused, self._parts, reason)
        self._warned_of_refusal = bool(refused)
