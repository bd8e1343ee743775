"""The page of metrics as OpenMetrics 1.0, for scrapers whose header Accept prefers it.

Names of samples are the same in both forms, so that a scraper that changes the form continues the
same series: a counter without `_total`, as Triton has them, is `unknown` here. Bounds of buckets
are canonical numbers, 1.0 and not 1, as the standard requires.
"""

from __future__ import annotations

import asyncio
import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from zmqtriton.sdk.frontend import Gateway
from zmqtriton.sdk.wire import metrics
from zmqtriton_standard.metrics.model_metrics import escape
from zmqtriton_standard.metrics.services import at_socket
from zmqtriton_standard.tracing.exemplars import EXEMPLARS

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_TYPE = "application/openmetrics-text"
_PLAIN_TYPES = ("text/plain", "text/*", "*/*")
#: An empty version is that of the media type's registration.
_VERSIONS = ("1.0.0", "")
#: Seconds for the exemplars; a page without them is better than no page.
_WITHIN_S = 1.0
#: The samples that have exemplars.
_TIMES = "zmqtriton_request_duration_seconds_bucket"
_TOTAL = "_total"
_HELP, _KIND = "# HELP ", "# TYPE "
_BOUND = re.compile(r'((?:le|quantile)=")([^"]+)("\} \S+)$')
_MODEL = re.compile(r'[{,]model="((?:[^"\\]|\\.)*)"')
_VERSION = re.compile(r'[{,]version="([^"]*)"')
#: Maximum number of digits before the point; Go writes larger numbers with an exponent.
_LONG = 6

#: A model, its version, seconds, the ids of trace and span, and when that was.
Exemplar = Sequence[Any]


def convert(page: str, exemplars: Iterable[Exemplar] = ()) -> str:
    """Return the page with exemplars next to the buckets of request durations."""
    by_bucket = {_bucket_of(exemplar): _written(exemplar) for exemplar in exemplars}
    return "".join(f"{line}\n" for line in _lines(page, by_bucket)) + "# EOF\n"


def _lines(page: str, by_bucket: dict[tuple[str, str, str], str]) -> Iterator[str]:
    help_text = kind = ""
    for line in filter(None, page.split("\n")):
        if line.startswith(_HELP):
            # only in OpenMetrics a quotation mark is escaped
            help_text = line[len(_HELP) :].partition(" ")[2].replace('"', '\\"')
        elif line.startswith(_KIND):
            name, _, kind = line[len(_KIND) :].partition(" ")
            if kind == "counter" and not name.endswith(_TOTAL):
                kind = "unknown"
            name = name.removesuffix(_TOTAL) if kind == "counter" else name
            if help_text:
                yield f"{_HELP}{name} {help_text}"
            yield f"{_KIND}{name} {kind}"
            help_text = ""
        elif kind in ("histogram", "summary"):
            line = _BOUND.sub(lambda match: f"{match[1]}{canonical(match[2])}{match[3]}", line)
            has_exemplars = by_bucket and line.startswith(_TIMES)
            yield line + by_bucket.get(_bucket_in(line), "") if has_exemplars else line
        else:
            yield line


def canonical(text: str) -> str:
    """Return a number as Go and the standard write it."""
    if text in ("+Inf", "-Inf", "NaN"):
        return text
    number = repr(float(text))
    whole, point, rest = number.partition(".")
    if point and len(whole) > _LONG and whole.isdecimal():
        digits = f"{whole[0]}.{whole[1:]}{rest}".rstrip("0").rstrip(".")
        return f"{digits}e+{len(whole) - 1:02}"
    return number


def _bucket_of(exemplar: Exemplar) -> tuple[str, str, str]:
    model, version, seconds = exemplar[:3]
    place = bisect_left(metrics.REQUEST_BOUNDS_S, seconds)
    bound = (
        canonical(str(metrics.REQUEST_BOUNDS_S[place]))
        if place < len(metrics.REQUEST_BOUNDS_S)
        else "+Inf"
    )
    return escape(model), str(version), bound


def _bucket_in(line: str) -> tuple[str, str, str]:
    model, version, bound = _MODEL.search(line), _VERSION.search(line), _BOUND.search(line)
    return model[1] if model else "", version[1] if version else "", bound[2] if bound else ""


def _written(exemplar: Exemplar) -> str:
    seconds, trace, span, time_s = exemplar[2:]
    return f' # {{trace_id="{trace}",span_id="{span}"}} {seconds!r} {time_s:.3f}'


class OpenMetrics:
    """The choice between the two forms, and the exemplars of the process of traces."""

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
