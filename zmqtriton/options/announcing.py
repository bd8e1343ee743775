"""The options for what leaves a server: announcements, and decisions that outlive it."""

from __future__ import annotations

from urllib.parse import urlsplit

from zmqtriton.options import kinds as a
from zmqtriton.options import values as read
from zmqtriton.options.values import BadValue


def _place(value: str) -> str:
    """Return the name of a file, or the URL of somebody who takes announcements."""
    if "://" not in value:
        if not value:
            raise BadValue("The name of a file, or a URL, is missing.")
        return value
    try:
        parts = urlsplit(value)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right or not value.isprintable() or " " in value:
        raise BadValue(f"Only http and https addresses are possible. Got {value}")
    if "@" in parts.netloc:
        raise BadValue("A URL must hold no password; see --announce-token-file.")
    return value


ANNOUNCEMENT_OPTIONS = (
    a.text(
        "state-directory",
        "Directory for decisions about canaries, which outlive the server; servers may share it. "
        "Default is $STATE_DIRECTORY or below ~/.local/state.",
    ),
    a.custom("FILE|URL", _place)(
        "announce",
        "Where to announce this server: a file that is replaced, or a URL that gets a POST, on "
        "each change and as a heartbeat. May be repeated.",
    ),
    a.text(
        "announce-host",
        "Host in announced addresses. Default is the address that the server listens on, and "
        "this machine's if these are all.",
    ),
    a.integer(
        "announce-interval-secs",
        "Seconds between announcements if nothing changes.",
        read=read.integer_between(1, 3600, "Must be in the range 1 to 3600 seconds. Got {value}"),
    ),
    a.text(
        "announce-token-file",
        "File with a bearer token that is sent with announcements to URLs.",
    ),
)
