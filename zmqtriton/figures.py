"""Figures for people: sizes, durations and counts in words."""

from __future__ import annotations

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
_DURATIONS = ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s"))


def format_bytes(size: float | None) -> str:
    """Return a size in the largest unit that fits; "-" for None."""
    if size is None:
        return "-"
    value, unit = float(size), 0
    while value >= 1000 and unit < len(_SIZES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.3g} {_SIZES[unit]}"


def format_duration(seconds: float) -> str:
    """Return a duration in its two largest units."""
    whole = max(0, int(seconds))
    for size, unit, next_size, next_unit in _DURATIONS:
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // next_size:02}{next_unit}"
    return f"{whole}s"


def brief(seconds: float) -> str:
    """Return the time of a request in a few digits."""
    return f"{seconds:.3g} s" if seconds >= 0.9995 else f"{seconds * 1e3:.3g} ms"


def count_of(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
