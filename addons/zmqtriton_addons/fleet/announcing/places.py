"""The places that announcements go to: a file that is replaced, or a URL that gets a POST.

Both may block for long, so each has a thread of its own, which also keeps announcements in order.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from zmqtriton_addons.fleet.announcing.announcement import ENDED
from zmqtriton_addons.tracing.posting import Poster, PostError
from zmqtriton_floor import __version__

#: Tells a place; raises AnnounceError.
Tell = Callable[[bytes, float], None]

_MAX_TOKEN = 16 << 10
#: Addresses for documentation, which nobody has: nothing is sent there.
_ELSEWHERE = [(socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")]


class AnnounceError(Exception):
    """Raised if a place has not got an announcement; the text says why."""


def open_place(place: str, token_file: str) -> Tell:
    """Return how to tell a file or a URL. Raises OSError if there are no certificates."""
    if "://" not in place:
        return lambda line, within_s: _replace(Path(place), line)
    headers = {"Content-Type": "application/json", "User-Agent": f"zmqtriton/{__version__}"}
    tls = ssl.create_default_context() if place.startswith("https:") else None
    poster = Poster(place, headers, tls)

    def post(line: bytes, within_s: float) -> None:
        try:
            poster(line, within_s, _authorization(token_file))
        except PostError as error:
            raise AnnounceError(str(error)) from None

    return post


def _replace(path: Path, line: bytes) -> None:
    """Write the file anew, so that a reader finds one whole announcement.

    The end of this run is not for a file that a later one has taken over: a server that was killed
    may have been started again already.
    """
    own = json.loads(line)
    if own.get("state") == ENDED and _started_s(path) > own["started_s"]:
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with suppress(FileNotFoundError):
            draft.unlink()
        with draft.open("xb") as file:
            file.write(line)
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise AnnounceError(error.strerror or str(error)) from None


def _started_s(path: Path) -> float:
    """Return when the server was started that has announced itself in this file; 0 if none has."""
    try:
        return float(json.loads(path.read_bytes())["started_s"])
    except (OSError, ValueError, TypeError, KeyError):
        return 0.0


def _authorization(token_file: str) -> dict[str, str]:
    """Return the header with the token, which is read each time: it may have been replaced."""
    if not token_file:
        return {}
    try:
        with open(token_file, "rb") as file:
            token = file.read(_MAX_TOKEN).decode("ascii").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a token"
        raise AnnounceError(f"{token_file}: {reason}") from None
    if not token or not token.isprintable():
        raise AnnounceError(f"{token_file}: not a token")
    return {"Authorization": f"Bearer {token}"}


def own_host(place: str) -> str:
    """Return this machine's address as `place` sees it, else as the default route has it."""
    seen_from = [*_resolve(urlsplit(place).hostname or ""), *_ELSEWHERE]
    for family, address in seen_from:
        if address_here := _source(family, address):
            return address_here
    return socket.gethostname()


def _resolve(host: str) -> list[tuple[int, str]]:
    if not host:
        return []
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return []  # it may be known later, or never; the default route will do
    return [(family, str(address[0])) for family, _, _, _, address in addresses]


def _source(family: int, host: str) -> str:
    """Return the address from which packets to this host would go; "" if there is no way."""
    with socket.socket(family, socket.SOCK_DGRAM) as end, suppress(OSError):
        end.connect((host, 9))  # of a datagram socket: nothing is sent
        return str(end.getsockname()[0])
    return ""
