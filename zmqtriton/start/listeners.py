"""The server's TCP sockets, bound at start so that a port in use is an error at once.

Nothing listens here: processes get a bound socket and listen when the server opens. They share it
with each other and with the supervisor, so that clients who connect while one is replaced wait.
Only grpcio binds a socket of its own; the socket here reserves the port until then. Sockets that
systemd passes listen already, and are served as they are.

For an address that means all addresses, IPv6 is used if the machine has no IPv4: other machines
then reach the server, and an IPv4 address that is added later is also served.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import re
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from zmqtriton import addons
from zmqtriton.options import Options, option_of
from zmqtriton.start.ports import SharedPorts, describe_listener
from zmqtriton.systemd import PassedSocket

HTTP = "http-arbiter"
GRPC = "grpc"
#: Role of gRPC's second socket: a host name can have an address of IPv4 and one of IPv6.
GRPC_OTHER_FAMILY = "grpc-other-family"
METRICS = "metrics"
#: The roles that serve add-ons' ports, by the add-ons' names for them.
_SERVING = {"http": HTTP, "metrics": METRICS}
#: Errors of a bind to an address that another process has, or that this user may not use.
_TAKEN = frozenset({errno.EADDRINUSE, errno.EACCES})
_IPV4, _IPV6 = "0.0.0.0", "::"

#: An address of this machine in the kernel's table of routes. To import psutil for its list of
#: addresses would take a tenth of the supervisor's start.
_OWN_IPV4 = re.compile(r"\|-- (\S+)\n +/32 host LOCAL")

_log = logging.getLogger(__name__)


def widen(options: Options) -> Options:
    """Return the options for this machine, with "all addresses" as the addresses that it has."""
    wide: dict[str, Any] = {
        n: _IPV6
        for n in ("http_address", "grpc_address", "metrics_address")
        if getattr(options, n) == _IPV4
    }
    if not wide or not has_only_ipv6(own_addresses()):
        return options
    _log.info(
        "This machine has addresses of IPv6 alone: the server listens on [::] in place of 0.0.0.0"
    )
    return replace(options, **wide)


def has_only_ipv6(addresses: Iterable[str]) -> bool:
    """Return whether others reach a machine with these addresses by IPv6 alone.

    Loopback and link-local addresses only count if there are no others.
    """
    parsed = [ipaddress.ip_address(address.partition("%")[0]) for address in addresses]
    wide = [each for each in parsed if not each.is_loopback and not each.is_link_local]
    return {each.version for each in wide or parsed} == {6}


def own_addresses() -> Iterator[str]:
    """Return the addresses of this machine; none if its routes cannot be read."""
    with suppress(OSError):
        yield from set(_OWN_IPV4.findall(Path("/proc/net/fib_trie").read_text()))
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            yield str(ipaddress.IPv6Address(bytes.fromhex(line.split()[0])))


class PortError(Exception):
    """Raised when the server cannot have a port; the text is for its operator."""


class SharedWith(Enum):
    """The owners of a shared port; the kernel then spreads connections over all listeners."""

    NOBODY = 0
    #: several processes of this server
    OWN_PROCESSES = 1
    #: also other servers of this user that share it, too
    OTHER_SERVERS = 2


@dataclass(frozen=True)
class BoundSocket:
    """A bound socket and its purpose."""

    role: str
    socket: socket.socket
    #: Systemd has it, too, and passes it to the next server.
    is_passed: bool = False

    @property
    def address(self) -> str:
        return str(self.socket.getsockname()[0])

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])


class _Service(NamedTuple):
    """A service with a socket, and the fields of the options that are about it."""

    role: str
    #: Name for people.
    title: str
    switch: str
    address: str
    port: str


#: The services that systemd may pass a socket for, by the names that FileDescriptorName= may have.
_PASSABLE = {
    "http": _Service(HTTP, "HTTP", "allow_http", "http_address", "http_port"),
    "grpc": _Service(GRPC, "GRPC", "allow_grpc", "grpc_address", "grpc_port"),
    "metrics": _Service(METRICS, "Metrics", "allow_metrics", "metrics_address", "metrics_port"),
}


def adopt(
    options: Options, passed: Collection[PassedSocket]
) -> tuple[Options, dict[str, BoundSocket]]:
    """Return passed sockets by role, and the options with their addresses and ports.

    A socket is for the service of its name, or else for that of its port. Raises PortError for one
    without a service: clients would connect, and wait forever.
    """
    options = widen(options)
    listeners: dict[str, BoundSocket] = {}
    for descriptor, name in passed:
        listener = _open_passed(descriptor)
        port = listener.getsockname()[1]
        service = _PASSABLE.get(name) or next(
            (each for each in _PASSABLE.values() if getattr(options, each.port) == port), None
        )
        if service is None:
            raise PortError(
                f"systemd passes a socket for port {port}, which is that of no service: give it "
                f"FileDescriptorName=http, grpc or metrics, or name the port by an option"
            )
        if not getattr(options, service.switch) or service.role in listeners:
            reason = "there are two" if service.role in listeners else "the service is turned off"
            raise PortError(f"correct the .socket unit for {service.port}: {reason}")
        if service.role == GRPC and options.grpc_transport != "native":
            raise PortError("systemd passes a socket for gRPC: --grpc-transport must be native")
        listeners[service.role] = BoundSocket(service.role, listener, is_passed=True)
        options = _at(options, service, listeners[service.role])
    return options, listeners


def adopt_offered(
    options: Options, adopted: Mapping[str, BoundSocket], offered: Mapping[str, BoundSocket]
) -> tuple[Options, dict[str, BoundSocket]]:
    """Return options and sockets as `adopt` does, with sockets that systemd has passed."""
    listeners = dict(adopted)
    for service in _PASSABLE.values():
        bound = offered.get(service.role)
        is_lacking = getattr(options, service.switch) and service.role not in adopted
        if bound is not None and bound.is_passed and is_lacking:
            listeners[service.role] = bound
            options = _at(options, service, bound)
    return options, listeners


def _at(options: Options, service: _Service, bound: BoundSocket) -> Options:
    """Return the options with the place of a service."""
    place: dict[str, Any] = {service.address: bound.address, service.port: bound.port}
    return replace(options, **place)


def _open_passed(descriptor: int) -> socket.socket:
    try:
        listener = socket.socket(fileno=descriptor)
        is_listening = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise PortError(
            f"systemd passes descriptor {descriptor}, check the .socket unit: {error.strerror}"
        ) from error
    listener.set_inheritable(False)
    if not is_listening or listener.family not in (socket.AF_INET, socket.AF_INET6):
        listener.close()
        raise PortError(
            f"systemd passes descriptor {descriptor}, which must be a listening TCP socket"
        )
    return listener


def served_ports(options: Options) -> list[int]:
    """Return the ports at which a server with these options is known."""
    roles = {service.role for service in _PASSABLE.values()}
    return [port for role, port in all_ports(options).items() if role in roles]


def all_ports(options: Options) -> dict[str, int]:
    """Return the ports of a server with these options by role."""
    return {each.role: options.value(each.port) for each in _services(options)}


def port_fields() -> dict[str, str]:
    """Return the fields of the options with ports, by role."""
    return {
        **{service.role: service.port for service in _PASSABLE.values()},
        **{port.name: port.number for port in addons.ports()},
    }


def served_too(role: str) -> tuple[str, ...]:
    """Return the further sockets that the processes of a role serve."""
    if role == GRPC:
        return (GRPC_OTHER_FAMILY,)
    return tuple(port.name for port in addons.ports() if _SERVING[port.of] == role)


def bind_all(
    options: Options,
    adopted: Mapping[str, BoundSocket] = MappingProxyType({}),
    offered: Mapping[str, BoundSocket] = MappingProxyType({}),
) -> dict[str, BoundSocket]:
    """Bind all sockets but those that are adopted, and return all by role.

    Sockets that another server offers are taken if they have these ports; grpcio's sockets are
    added to the other server's. Raises PortError; then nothing stays bound.
    """
    sharing = _shared_roles(options, is_replacing=bool(offered))
    listeners = dict(adopted)
    try:
        for service in _services(options):
            role, port = service.role, options.value(service.port)
            address = getattr(options, service.address) or options.http_address
            is_offered = role in offered and offered[role].port == port
            if role not in listeners and is_offered:
                _check_address(service, address, offered[role])
                listeners[role] = offered[role]
            elif role not in listeners:
                listeners[role] = BoundSocket(
                    role, _bind(service, address, port, sharing.get(role, SharedWith.NOBODY))
                )
        if listeners.get(GRPC) is offered.get(GRPC, ""):
            listeners |= {r: each for r, each in offered.items() if r == GRPC_OTHER_FAMILY}
        elif options.grpc_transport == "native" and GRPC in listeners and GRPC not in adopted:
            other = _bind_other_family(options, listeners[GRPC], sharing[GRPC])
            if other is not None:
                listeners[GRPC_OTHER_FAMILY] = BoundSocket(GRPC_OTHER_FAMILY, other)
    except PortError:
        close_all(listeners)
        raise
    finally:
        close_all({r: each for r, each in offered.items() if listeners.get(r) is not each})
    return listeners


def _shared_roles(options: Options, *, is_replacing: bool) -> dict[str, SharedWith]:
    """Return which ports are shared, and with whom."""
    is_native = options.grpc_transport == "native"
    sharing = {GRPC: SharedWith.NOBODY if is_native else SharedWith.OWN_PROCESSES}
    if options.reuse_http_port:
        sharing[HTTP] = SharedWith.OTHER_SERVERS
    if options.reuse_grpc_port or (is_replacing and not is_native):
        sharing[GRPC] = SharedWith.OTHER_SERVERS
    return sharing


def _services(options: Options) -> list[_Service]:
    """Return the services of a server with these options."""
    return [
        *(service for service in _PASSABLE.values() if getattr(options, service.switch)),
        *(
            _Service(port.name, port.title, port.on, f"{port.of}_address", port.number)
            for port in addons.ports_in_use(options.value)
        ),
    ]


def _check_address(service: _Service, address: str, offered: BoundSocket) -> None:
    """Raise PortError if a socket with the right port listens at another address."""
    if offered.address not in [where[0] for *_, where in _resolve(service, address, offered.port)]:
        text = f"the server that is replaced listens at {offered.address}, and not at '{address}'"
        raise PortError(
            _refusal(service, f"{text} - name the same address with {option_of(service.address)}")
        )


def _bind_other_family(
    options: Options, first: BoundSocket, sharing: SharedWith
) -> socket.socket | None:
    """Bind the port of the first at the first address of another family, if the name has one."""
    service = _PASSABLE["grpc"]
    addresses = _resolve(service, options.grpc_address, first.port)
    others = [where for family, _, _, _, where in addresses if family != first.socket.family]
    if not others:
        return None
    try:
        return _bind(service, str(others[0][0]), first.port, sharing)
    except PortError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in _TAKEN:
            raise
        return None  # names have addresses of families that the machine does without


def _resolve(service: _Service, address: str, port: int) -> list[Any]:
    """Return the addresses that a service may bind. Raises PortError."""
    try:
        return socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise PortError(_refusal(service, f"unable to resolve '{address}': {error}")) from error


def _bind(service: _Service, address: str, port: int, sharing: SharedWith) -> socket.socket:
    family, kind, protocol, _, where = _resolve(service, address, port)[0]
    try:
        held = socket.socket(family, kind, protocol)
    except OSError as error:
        text = f"unable to bind '{address}:{port}': {error.strerror}"
        if error.errno == errno.EAFNOSUPPORT:
            version = "IPv6" if family == socket.AF_INET6 else "IPv4"
            text = f"'{address}' is of {version}, which this machine has not - name another "
            text += f"address with {option_of(service.address)}"
        raise PortError(_refusal(service, text)) from error
    try:
        if sharing is SharedWith.OWN_PROCESSES:
            # A port that others share would be bound without complaint, so it is tried exclusively
            # first.
            with socket.socket(family, kind, protocol) as probe:
                _bind_exclusively(probe, where)
                where = probe.getsockname()
        if sharing is not SharedWith.NOBODY:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6 and where[0] == "::":
            # all addresses include those of IPv4, whatever the machine's default is
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        _bind_exclusively(held, where)
    except OSError as error:
        held.close()
        text = f"unable to bind '{address}:{port}': {error.strerror}"
        if error.errno == errno.EADDRINUSE:
            holder = describe_listener(port)
            text = f"Socket '{address}:{port}' already in use {holder and f'by {holder} '}"
            text += f"- choose another port with {option_of(service.port)}"
        raise PortError(_refusal(service, text)) from error
    return held


def _bind_exclusively(bound: socket.socket, where: tuple[object, ...]) -> None:
    """Bind, even with connections of an earlier server in TIME_WAIT.

    The option is cleared afterwards, so that no other process can bind before this one listens.
    """
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(where)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)


def _refusal(service: _Service, text: str) -> str:
    return f"failed to start {service.title} service: Unavailable - {text}"


def allow_address_reuse(listeners: dict[str, BoundSocket]) -> None:
    """Allow the next server to bind while accepted connections exist.

    To be set before they listen.
    """
    for listener in listeners.values():
        listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def shared_ports(options: Options, listeners: Mapping[str, BoundSocket]) -> SharedPorts:
    """Return the ports that other servers may also listen on (SO_REUSEPORT)."""
    roles = [HTTP] if options.reuse_http_port else []
    if options.reuse_grpc_port and options.grpc_transport == "native":
        roles += [GRPC, GRPC_OTHER_FAMILY]
    shared = (listeners[role] for role in roles if role in listeners)
    return SharedPorts(each.socket for each in shared if not each.is_passed)


def for_next_server(listeners: Mapping[str, BoundSocket]) -> list[BoundSocket]:
    """Return the sockets for a server that takes over: all that listen on TCP."""
    return [each for each in listeners.values() if _is_listening(each.socket)]


def _is_listening(bound: socket.socket) -> bool:
    return bound.family in (socket.AF_INET, socket.AF_INET6) and bool(
        bound.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    )


def close_all(listeners: dict[str, BoundSocket]) -> None:
    for listener in listeners.values():
        listener.socket.close()
