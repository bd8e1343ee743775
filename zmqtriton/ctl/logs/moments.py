"""Moments on the command line: a time, or how long ago. Does no I/O."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")


def parse_moment(text: str, now_s: float) -> float:
    """Return seconds since 1970, for `10m`, `1h30m`, `03:15` or `2026-11-22 03:15`.

    A time of the day that is still to come is yesterday's. Raises ValueError.
    """
    if text and not _PART.sub("", text):
        return now_s - sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))
    if not _TIME_OF_DAY.fullmatch(text):
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    now = datetime.fromtimestamp(now_s)
    parts = [int(part) for part in text.split(":")]
    hour, minute, second = [*parts, 0][:3]
    moment = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
    if moment > now:
        moment -= timedelta(days=1)
    return moment.timestamp()
