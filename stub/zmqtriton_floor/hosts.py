"""Names and addresses of hosts, as servers are told to listen on them and clients to ask them."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Return True for an address without brackets, or the name, that only this machine reaches."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
