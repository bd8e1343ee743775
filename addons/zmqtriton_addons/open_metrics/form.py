"""The choice between the two forms of the page, by a scraper's header Accept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

from zmqtriton_addons.metrics.services import at_socket
from zmqtriton_addons.open_metrics.text import convert
from zmqtriton_addons.tracing import EXEMPLARS
from zmqtriton_frontends.gateway import Gateway

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_TYPE = "application/openmetrics-text"
_PLAIN_TYPES = ("text/plain", "text/*", "*/*")
#: An empty version is that of the media type's registration.
_VERSIONS = ("1.0.0", "")
#: A page without exemplars is better than none.
_WITHIN_S = 1.0


class OpenMetrics:
    def __init__(self, gateway: Gateway) -> None:
        self._ask = at_socket(gateway, EXEMPLARS)

    async def __call__(self, accept: str, content_type: str, page: str) -> tuple[str, str]:
        """Return content type and text of the form that a scraper prefers."""
        if not prefers_open_metrics(accept):
            return content_type, page
        try:
            rows = json.loads(await asyncio.wait_for(self._ask(), _WITHIN_S) or "[]")
        except (OSError, ValueError, asyncio.TimeoutError):
            rows = []  # nothing is traced
        return CONTENT_TYPE, convert(page, rows)


def prefers_open_metrics(accept: str) -> bool:
    """Return whether OpenMetrics is acceptable, and not less than the ordinary form."""
    ours = plain = 0.0
    for media_type, version, quality in _parse(accept):
        if media_type == _TYPE and version in _VERSIONS:
            ours = max(ours, quality)
        elif media_type in _PLAIN_TYPES:
            plain = max(plain, quality)
    return ours > 0 and ours >= plain


def _parse(accept: str) -> Iterator[tuple[str, str, float]]:
    """Yield the types of a header, each with its version and quality."""
    for part in accept.lower().split(","):
        media_type, *texts = (text.strip() for text in part.split(";"))
        parameters = dict(text.partition("=")[::2] for text in texts)
        try:
            quality = float(parameters.get("q", "1"))
        except ValueError:
            continue
        yield media_type, parameters.get("version", "").strip('"'), quality
