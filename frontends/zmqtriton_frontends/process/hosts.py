"""The names that clients may use for the server.

A web page can let its own name point to this machine (DNS rebinding), and would then pass for a
page of this server. But it cannot choose the `Host` header that its browser sends: this header has
the page's name. Names are checked if the server is for this machine alone, or if names are
configured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from zmqtriton_floor.hosts import ip_of, is_loopback

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_.-]+))(?::[0-9]{0,5})?")
#: The longest name of DNS; clients get no more of theirs back.
_LONGEST_NAME = 253


def host_name(host: str) -> str | None:
    """Return the name or address of a `Host`, without its port; None if it is malformed."""
    match = _HOST.fullmatch(host)
    return None if match is None else (match[1] or match[2]).lower()


def is_address(name: str) -> bool:
    return ip_of(name) is not None


class AllowedHosts:
    def __init__(self, listening: str, names: Iterable[str]) -> None:
        """Set up for the address that the server listens on."""
        self._names = frozenset(name.lower() for name in names)
        self.is_checked = is_loopback(listening) or bool(self._names)

    def admits(self, host: str) -> bool:
        """True for an address, for `localhost` and for the configured names."""
        if not self.is_checked:
            return True
        name = host_name(host)
        return name is not None and (is_address(name) or name == "localhost" or name in self._names)


def host_refusal(host: str) -> str:
    """Return the text for a client whose `Host` is not admitted."""
    name = host_name(host)
    if name is None or len(name) > _LONGEST_NAME:
        signs = (s if s.isascii() and s.isprintable() else "?" for s in host[:_LONGEST_NAME])
        return f"Host '{''.join(signs)}' is not allowed: it is no valid name"
    return (
        f"Host '{name}' is not allowed: start the server with --http-allowed-host={name}, "
        "or let a proxy send the server's own address as Host"
    )
