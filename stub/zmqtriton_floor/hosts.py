"""Hosts by name or address: whether one is loopback, and its IP address."""

from __future__ import annotations

import ipaddress
from typing import Union


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host: a name, or an address without brackets."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def ip_of(host: str) -> Union[ipaddress.IPv4Address, ipaddress.IPv6Address, None]:
    """Return the IP of an address, as IPv4 if it is mapped into IPv6; None for a name."""
    try:
        ip = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return (ip.version == 6 and ip.ipv4_mapped) or ip
