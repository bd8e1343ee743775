"""The address that means all addresses of this machine: that of IPv6 where it has no other.

Other machines then reach the server, and IPv4, should it come later, is served there, too.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import psutil

from zmqtriton.options import Options

_IPV4, _IPV6 = "0.0.0.0", "::"
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_ADDRESSES = ("http_address", "grpc_address", "metrics_address")

_log = logging.getLogger(__name__)


def widen(options: Options) -> Options:
    """Return the options for this machine; all addresses are those that it has."""
    wide: dict[str, Any] = {n: _IPV6 for n in _ADDRESSES if getattr(options, n) == _IPV4}
    if not wide or not has_only_ipv6(_own_addresses()):
        return options
    _log.info(
        "This machine has addresses of IPv6 alone: the server listens on [::] in place of 0.0.0.0"
    )
    return replace(options, **wide)


def has_only_ipv6(addresses: Iterable[str]) -> bool:
    """Return whether others reach a machine with these addresses by IPv6 alone.

    Every machine has loopback, and some have an address of IPv4 on a link where nobody asks them.
    """
    parsed = [ipaddress.ip_address(address.partition("%")[0]) for address in addresses]
    wide = [each for each in parsed if not each.is_loopback and not each.is_link_local]
    versions = {each.version for each in wide or parsed}
    return versions == {6}


def _own_addresses() -> Iterator[str]:
    for rows in psutil.net_if_addrs().values():
        yield from (row.address for row in rows if row.family in _FAMILIES)
