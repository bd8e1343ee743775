"""The configuration of HAProxy 2.4 or newer, and commands for a running one."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from zmqtriton.sdk.wire import InvalidArgument
from zmqtriton_extras.fleet.proxies.layout import (
    AUTHORITY,
    BALANCE_FACTOR,
    Group,
    Layout,
    split_address,
)
from zmqtriton_extras.fleet.servers.nodes import Node

#: How servers are checked; one that is added by a command has no defaults.
CHECKS = "check inter 500ms fall 2 rise 1"

_GLOBAL = """\
# A server that is not ready gets no new requests; its running requests finish.
global
    maxconn 4000
    localpeer self"""
_DEFAULTS = f"""
defaults
    mode http
    timeout connect 2s
    # Longer than the longest answer; streams count from their last byte.
    timeout client 10m
    timeout server 10m
    timeout http-keep-alive 1m
    # After a reload a client hears that its connection ends with an answer, not with silence.
    option idle-close-on-response
    default-server {CHECKS}
    # Else a server that is only busy has as little time as lies between two checks.
    timeout check 2s
    # Nobody has begun with the request, so a client may send it again.
    http-error status 503 content-type application/json string '{{"error":"no server is ready"}}' \
hdr Retry-After 1
    retries 2
    option redispatch 1"""
_PEERS = """
# At a reload the old process tells the new one where sequences are, once it is ten seconds old.
peers sequences
    peer self abns@zmqtriton-"""
_RETRY_UNSENT = """\
    # A POST is tried elsewhere only if it could not be handed over, so nothing is executed twice.
    retry-on conn-failure empty-response response-timeout
    http-request disable-l7-retry if METH_POST"""
_RETRY_ALL = """\
    # What a server was executing when it died is executed elsewhere, if its body fits into
    # tune.bufsize (16 KiB); but no part of a sequence is.
    retry-on conn-failure empty-response response-timeout
    # One that is dying may take a request more than once.
    retries 5
    # Nothing is repeated that began to leave before its body was there. Streams cannot wait for it.
    http-request wait-for-body time 10m if METH_POST !{ path_end /ModelStreamInfer } \
!{ path_beg /grpc. }"""

#: Before the address of a server.
OWN_HOST = "    http-request set-header Host "
_WHY_OWN_HOST = """\
    # A server on loopback refuses the names that clients have for this proxy (421). Web pages that
    # change it through the proxy need --http-allowed-origin there."""
_WITHIN_S = 10.0
#: Columns of `show servers state`.
_BACKEND, _SERVER = 1, 3


def render(layout: Layout) -> str:
    return "\n".join(_lines(layout)) + "\n"


def _lines(layout: Layout) -> Iterator[str]:
    yield _GLOBAL
    if layout.socket:
        yield "    # By it servers come and go without a reload."
        yield f"    stats socket {_quote(layout.socket)} mode 600 level admin"
    yield _DEFAULTS
    if layout.sequence_header:
        # an abstract socket: one for each proxy of this machine, and no file
        yield _PEERS + (layout.http or layout.grpc or layout.statistics)
    if layout.http:
        yield from _http(layout)
    if layout.grpc and layout.grpc_group.nodes:
        yield from _grpc(layout)
    if layout.statistics:
        yield from _statistics(layout.statistics)


def _http(layout: Layout) -> Iterator[str]:
    yield "\nfrontend http"
    yield f"    bind {layout.http}{_client_tls(layout, 'h2,http/1.1')}"
    for group in layout.model_groups():
        path = f"/v2/models/{group.model}"
        condition = f"{{ path {path} }} || {{ path_beg {path}/ }}"
        yield f"    use_backend {_backend_name(group)} if {condition}"
    yield "    default_backend http_servers"
    for group in layout.http_groups():
        yield f"\nbackend {_backend_name(group)}"
        yield from _backend(layout, group)
        if group.own_host:
            yield _WHY_OWN_HOST
            yield OWN_HOST + group.own_host
        for node in group.nodes:
            yield f"    server {node.name} {node.http}{_server_tls(layout, node)}{_weight(node)}"


def _grpc(layout: Layout) -> Iterator[str]:
    yield "\n# Requests are dealt one by one, also those of one connection."
    yield "frontend grpc"
    yield f"    bind {layout.grpc}{_client_tls(layout, 'h2') or ' proto h2'}"
    for header, value, group in layout.grpc_rules():
        # without the port, with which many clients name it
        name = "req.hdr(host),field(1,:)" if header == AUTHORITY else f"req.hdr({header})"
        yield f"    use_backend {_backend_name(group, 'grpc:')} if {{ {name} -m str {value} }}"
    yield "    default_backend grpc_servers"
    yield "    # Asked over HTTP whether they are ready, since that is what HAProxy can ask."
    for group in layout.grpc_groups():
        yield f"\nbackend {_backend_name(group, 'grpc:')}"
        yield from _backend(layout, group)
        for node in group.nodes:
            yield _grpc_server(layout, node)


def _grpc_server(layout: Layout, node: Node) -> str:
    encrypted = _tls(layout, node.grpc) + " alpn h2" if "grpc" in node.tls else " proto h2"
    host, port = split_address(node.http)
    where = "" if host == split_address(node.grpc)[0] else f" addr {host}"
    probe = f" check{where} port {port} check-proto h1"
    if "http" in node.tls:
        probe += f" check-ssl check-sni {_name(layout, node.http)}"
        probe += "" if "grpc" in node.tls else _authorities(layout)
    return f"    server {node.name} {node.grpc}{encrypted}{probe}{_weight(node)}"


def _backend_name(group: Group, service: str = "") -> str:
    """Return a backend's name, fixed for its model: HAProxy keeps sequences by this name.

    Names of backends may have colons, which plain names of models lack, but no tildes.
    """
    return f"{service}model:{group.model.replace('~', ':')}" if group.model else group.name


def _backend(layout: Layout, group: Group) -> Iterator[str]:
    if layout.affinity_header:
        yield "    # Requests without it are dealt by turns."
        yield f"    balance hdr({layout.affinity_header})"
        yield "    hash-type consistent sdbm avalanche"
        yield f"    hash-balance-factor {BALANCE_FACTOR}"
    else:
        yield "    balance leastconn"
    yield f"    option httpchk GET {group.probe_path}"
    if layout.probe_headers:
        headers = "".join(f" hdr {name} {_quote(value)}" for name, value in layout.probe_headers)
        yield f"    http-check send meth GET uri {group.probe_path}{headers}"
    yield _RETRY_ALL if layout.may_repeat else _RETRY_UNSENT
    header = layout.sequence_header
    if layout.may_repeat and header:
        yield f"    http-request disable-l7-retry if {{ req.hdr({header}) -m found }}"
    if header:
        yield "    # A sequence stays where it began, also while that server drains."
        yield "    stick-table type string len 128 size 100k expire 10m peers sequences"
        yield f"    stick on req.hdr({header})"
        yield "    option persist"


def _statistics(address: str) -> Iterator[str]:
    yield "\nfrontend statistics"
    yield f"    bind {address}"
    yield "    http-request use-service prometheus-exporter if { path /metrics }"
    yield "    stats enable"
    yield "    stats uri /"
    yield "    stats refresh 5s"


def _client_tls(layout: Layout, protocols: str) -> str:
    return f" ssl crt {_quote(layout.certificate)} alpn {protocols}" if layout.certificate else ""


def _server_tls(layout: Layout, node: Node) -> str:
    if "http" not in node.tls:
        return ""
    # without a name of its own a health check sends none, and a server may answer with another; one
    # that is added by a command is checked without TLS if nothing is said
    return f"{_tls(layout, node.http)} check-ssl check-sni {_name(layout, node.http)}"


def _tls(layout: Layout, address: str) -> str:
    name = _name(layout, address)
    return f" ssl{_authorities(layout)} verifyhost {name} sni str({name})"


def _name(layout: Layout, address: str) -> str:
    return layout.server_name or split_address(address)[0]


def _authorities(layout: Layout) -> str:
    return f" verify required ca-file {_quote(layout.server_ca or '@system-ca')}"


def _weight(node: Node) -> str:
    if not node.agent_check:
        return ""
    host, port = split_address(node.agent_check)
    where = "" if host == split_address(node.http)[0] else f" agent-addr {host}"
    return f" weight 100 agent-check{where} agent-port {port} agent-inter 1s"


def _quote(text: str) -> str:
    return "".join(f"\\{sign}" if sign in " \\\"'#$" else sign for sign in text)


class HaproxyCommands:
    """A running HAProxy and its command socket: servers are added and removed without a reload.

    A reload starts another process. The old process hands over the servers of sequences once, but
    still passes on responses after that: the new one never learns of sequences that begin with
    these. HAProxy 2.4 gets new servers by a reload only, 2.5 and newer also by commands.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def change(self, before: str, after: str) -> None:
        """Change HAProxy from one configuration to another.

        Raises OSError, and InvalidArgument if HAProxy must reload for that.
        """
        old, old_rest = _split(before)
        new, new_rest = _split(after)
        if old_rest != new_rest:
            raise InvalidArgument("more than servers has changed")
        additions = [place for place in new if new[place] != old.get(place)]
        for place in additions:
            _check_address(new[place])
        # also those of earlier changes that still had connections then
        for place in self._present() - (new.keys() - additions):
            self._remove(place)
        for place in additions:
            self._add(place, new[place])

    def has_servers_of(self, configuration: str) -> bool:
        """Return whether HAProxy has all servers of a configuration. Raises OSError."""
        return _split(configuration)[0].keys() <= self._present()

    def _add(self, place: str, words: str) -> None:
        self._do(f"add server {place} {words} {CHECKS}", "New server registered.")
        self._do(f"enable health {place}")
        if " agent-check " in words:
            self._do(f"enable agent {place}")
            # as one of the configuration is until its agent says something else
            self._do(f"set server {place} agent up")
        self._do(f"enable server {place}")

    def _remove(self, place: str) -> None:
        """Remove a server; while it has connections its name stays, and gets no new ones."""
        self._do(f"disable agent {place}")
        self._do(f"disable server {place}")
        self._ask(f"del server {place}")

    def _present(self) -> set[str]:
        rows = [line.split() for line in self._ask("show servers state").splitlines()]
        return {f"{row[_BACKEND]}/{row[_SERVER]}" for row in rows[2:] if row}

    def _do(self, command: str, success: str = "") -> None:
        answer = self._ask(command)
        if answer != success:
            raise InvalidArgument(
                f"HAProxy must be 2.5 or newer: it answers '{command}' with '{answer}'"
            )

    def _ask(self, command: str) -> str:
        parts = []
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_WITHIN_S)
            connection.connect(str(self._path))
            connection.sendall(f"{command}\n".encode())
            while part := connection.recv(65536):
                parts.append(part)
        return b"".join(parts).decode(errors="replace").strip()


def _split(configuration: str) -> tuple[Mapping[str, str], list[str]]:
    """Return the servers of all backends, by BACKEND/NAME, and all other lines.

    The address that all servers on loopback share is left out, because each of them accepts any.
    """
    servers, rest, backend = dict[str, str](), list[str](), ""
    for line in configuration.splitlines():
        kind, _, words = line.strip().partition(" ")
        if kind == "server":
            name, _, words = words.partition(" ")
            servers[f"{backend}/{name}"] = words
        else:
            backend = words if kind == "backend" else backend
            rest.append(OWN_HOST if line.startswith(OWN_HOST) else line)
    return servers, rest


def _check_address(words: str) -> None:
    host, _ = split_address(words.split()[0])
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return
    raise InvalidArgument(f"HAProxy looks up '{host}' only at its start; name an IP address")
