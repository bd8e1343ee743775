"""The receivers of webhooks: URLs that a client may name, and addresses that may be connected to.

A host must be on the operator's list. Its address must be public, or be on the list itself, so that
clients cannot reach addresses that only the server can reach: its own machine, its network, the
metadata of its cloud. This module neither resolves nor connects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

MAX_URL = 2048
#: Stricter than the standards: whatever two readers might read differently is refused.
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z_](?:[0-9A-Za-z._-]*[0-9A-Za-z])?)"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<target>[/?][0-9A-Za-z/?%&=;:@!$'()*+,._~-]*)?",
    re.ASCII,
)
_ENTRY = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z_](?:[0-9A-Za-z._-]*[0-9A-Za-z])?)"
    r"(?::(?P<port>[0-9]{1,5}))?",
    re.ASCII,
)
_PORTS = {"http": 80, "https": 443}

Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network

#: The special addresses of IANA's registry of IPv4. Python's own table differs by release.
_NOT_PUBLIC = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
            "168.63.129.16/32",  # the metadata of Azure
        ),
    )
)
#: The public addresses of IPv6, and the tunnels and examples among them.
_UNICAST = ip_network("2000::/3")
_NOT_UNICAST = tuple(map(ip_network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
#: IPv4 behind a translator.
_TRANSLATED = ip_network("64:ff9b::/96")


class NotAllowed(ValueError):
    """Raised for a URL or an address that the operator's list does not allow."""


class Receiver(NamedTuple):
    is_secure: bool
    #: Host in lower case, without brackets.
    host: str
    port: int
    #: Path and query.
    target: str

    @property
    def authority(self) -> str:
        """Return the value of the header `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_usual = self.port == _PORTS["https" if self.is_secure else "http"]
        return host if is_usual else f"{host}:{self.port}"


class Allowed:
    """The list of `--webhook-allow`: hosts, with a port or without, and networks.

    An address without a port is a network of one. Addresses that are not public are allowed if a
    network on the list contains them, or if the URL and a host on the list name them.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        """Set up. Raises ValueError for an entry of another form."""
        #: Allowed hosts and ports; None stands for the ports of HTTP and HTTPS.
        self._hosts: set[tuple[str, int | None]] = set()
        self._networks: list[_Network] = []
        for entry in entries:
            self._add(entry)

    def _add(self, entry: str) -> None:
        try:
            self._networks.append(ip_network(entry))
            return
        except ValueError:
            match = _ENTRY.fullmatch(entry)
        if match is None or "/" in entry:
            raise ValueError(f"'{entry}' must be a host, HOST:PORT or a network such as 10.0.0.0/8")
        port = match["port"]
        self._hosts.add((_host_of(match["host"]), None if port is None else _port_of(port)))

    def find(self, url: str) -> Receiver:
        """Return the receiver that a URL names. Raises NotAllowed."""
        match = _URL.fullmatch(url) if len(url) <= MAX_URL else None
        if match is None:
            raise NotAllowed(
                "a webhook must be a URL such as https://host/path: ASCII, at most "
                f"{MAX_URL} characters, no user and no fragment"
            )
        host, usual = _host_of(match["host"]), _PORTS[match["scheme"]]
        port = _port_of(match["port"]) if match["port"] else usual
        address = _address_of(host)
        is_named = (host, port) in self._hosts or (
            port == usual
            and ((host, None) in self._hosts or (address is not None and self._has(address)))
        )
        if not is_named:
            raise NotAllowed(
                f"webhooks to {host}:{port} are not allowed: add the host to --webhook-allow"
            )
        target = match["target"] or "/"
        return Receiver(usual == 443, host, port, target if target[0] == "/" else f"/{target}")

    def check_address(self, receiver: Receiver, text: str) -> None:
        """Check the addresses of a receiver's host. Raises NotAllowed."""
        address = _plain(ip_address(text))
        is_named = str(address) == receiver.host
        if not (is_named or _is_public(address) or self._has(address)):
            raise NotAllowed(f"{address} is not public: add it to --webhook-allow")

    def _has(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def _port_of(text: str) -> int:
    port = int(text)
    if not 0 < port < 65536:
        raise NotAllowed(f"a port must be 1 to 65535, not {port}")
    return port


def _host_of(text: str) -> str:
    """Return a host for comparison: in lower case, addresses in canonical form."""
    host = text.strip("[]").lower()
    if text.startswith("["):
        return str(_plain(IPv6Address(host)))
    return host


def _address_of(host: str) -> Address | None:
    try:
        return _plain(ip_address(host))
    except ValueError:
        return None


def _plain(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address maps, or else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC)
    return address in _UNICAST and not any(address in network for network in _NOT_UNICAST)
