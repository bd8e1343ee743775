"""Readers of the options of announcements."""

from __future__ import annotations

from urllib.parse import urlsplit

from zmqtriton.sdk.process import options

interval = options.integer_between(1, 3600, "Must be in the range 1 to 3600 seconds. Got {value}")


def place(value: str) -> str:
    """Check the name of a file, or the URL of a program that receives announcements."""
    if "://" not in value:
        if not value:
            raise options.BadValue("The name of a file, or a URL, is missing.")
        return value
    try:
        parts = urlsplit(value)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right or not value.isprintable() or " " in value:
        raise options.BadValue(f"It must begin with http:// or https://. Got {value}")
    if "@" in parts.netloc:
        raise options.BadValue("A URL must hold no password; see --announce-token-file.")
    return value
