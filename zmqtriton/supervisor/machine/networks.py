"""The address that means all addresses of this machine: that of IPv6 where it has no other.

Other machines then reach the server, and IPv4, should it come later, is served there, too.
"""

from __future__ import annotations

import ctypes
import fcntl
import ipaddress
import logging
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from zmqtriton.options import Options

_IPV4, _IPV6 = "0.0.0.0", "::"
_ADDRESSES = ("http_address", "grpc_address", "metrics_address")

# netdevice(7): the addresses of IPv4, each behind the name of its interface. psutil would read
# them, too, and takes a tenth of the supervisor's start to be imported.
_SIOCGIFCONF = 0x8912
_REQUEST = struct.Struct("iP")
_ROW = struct.Struct("20x4s16x" if struct.calcsize("P") == 8 else "20x4s8x")
_MAX_ADDRESSES = 1000

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
    return {each.version for each in wide or parsed} == {6}


def _own_addresses() -> Iterator[str]:
    with suppress(OSError):  # there is no IPv4
        yield from _ipv4_addresses()
    with suppress(OSError):  # there is no IPv6
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            yield str(ipaddress.IPv6Address(bytes.fromhex(line.split()[0])))


def _ipv4_addresses() -> Iterator[str]:
    rows = ctypes.create_string_buffer(_MAX_ADDRESSES * _ROW.size)
    request = _REQUEST.pack(len(rows), ctypes.addressof(rows))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        length, _ = _REQUEST.unpack(fcntl.ioctl(any_socket, _SIOCGIFCONF, request))
    for (address,) in _ROW.iter_unpack(rows.raw[:length]):
        yield socket.inet_ntoa(address)
