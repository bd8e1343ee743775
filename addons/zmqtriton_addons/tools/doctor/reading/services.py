"""Reads servers, the ports they would have, the users of models, and the user's environment."""

from __future__ import annotations

import errno
import os
import socket
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from zmqtriton.control_client.client import QUICK_TIMEOUT_S, Client
from zmqtriton.ctl.status import needs_attention
from zmqtriton.environments import users
from zmqtriton.supervisor.machine.processes.port_holder import describe_listener
from zmqtriton_addons.tools.doctor.facts import Port, RunningServer, StubUser
from zmqtriton_addons.tools.doctor.reading.processes import read_use
from zmqtriton_floor.errors import ZmqTritonError

_SERVICES = (
    ("allow-http", "http-address", "http-port"),
    ("allow-grpc", "grpc-address", "grpc-port"),
    ("allow-metrics", "metrics-address", "metrics-port"),
)
_FIRST_FREE_FOR_ALL = 1024
#: Of a model's directory, relative to its repository.
_READ_BY_STUBS = ("*/config.pbtxt", "*/*/model.py")


def read_server(client: Client) -> tuple[RunningServer, dict[str, Any], dict[str, Any]]:
    """Ask a server; return it, its status, and its options."""
    identity = client.identity  # first, since who is stopped is not waited for long
    status = client.call("status", timeout_s=QUICK_TIMEOUT_S)
    index = client.call("index", {"ready": False, "reasons": True}, timeout_s=QUICK_TIMEOUT_S)
    rows = []
    with suppress(ZmqTritonError):  # one of an older version does not know the call
        rows = client.call("options", timeout_s=QUICK_TIMEOUT_S)
    troubled = dict.fromkeys(entry["name"] for entry in index if needs_attention(entry))
    uses = [
        read_use(process.get("instance") or process["role"], process["pid"])
        for process in status["processes"]
        if process.get("pid")
    ]
    server = RunningServer(identity.id, identity.pid, identity.version, tuple(troubled), uses)
    return server, status, {row["option"]: row["value"] for row in rows}


def read_ports(options: Mapping[str, Any]) -> Iterator[Port]:
    """Try the ports that a server with these options would open."""
    for allowed, address, option in _SERVICES:
        number = options.get(option, 0)
        if options.get(allowed) and number and not options.get(f"reuse-{option}"):
            yield read_port(option, options.get(address, ""), number)


def read_port(option: str, address: str, number: int) -> Port:
    try:
        found = socket.getaddrinfo(
            address or None, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, where = found[0]
        with socket.socket(family, kind, protocol) as probe:
            # as the server does: connections of an earlier one do not count
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        if error.errno == errno.EACCES and number < _FIRST_FREE_FOR_ALL:
            return Port(option, number, is_forbidden=True)
        if error.errno == errno.EADDRINUSE:
            return Port(option, number, "in use", describe_listener(number))
        return Port(option, number, error.strerror or str(error))
    return Port(option, number)


def read_stub_users(names: Sequence[str], repositories: Iterable[str]) -> Iterator[StubUser]:
    """Try whether models can run as these users; for root only, as whom else nobody can try."""
    paths = [Path(path) for path in repositories if os.path.isdir(path)]
    files = [file for path in paths for pattern in _READ_BY_STUBS for file in path.glob(pattern)]
    for name in names:
        try:
            users.find(name)
            if not os.geteuid():
                users.StubUsers([name]).check([*paths, *files])
        except users.UserError as error:
            text = str(error)
            yield StubUser(name, text.partition("': ")[2] or text.partition(": ")[2])
        else:
            yield StubUser(name)


def read_proxies() -> Iterator[str]:
    """Return the variables that send requests for this machine elsewhere."""
    places = urllib.request.getproxies_environment()
    for kind in ("http", "all"):
        is_bypassed = all(
            urllib.request.proxy_bypass(host, places) for host in ("localhost", "127.0.0.1")
        )
        if kind in places and not is_bypassed:
            yield f"{kind}_proxy={places[kind]}"


def read_home_problem() -> str:
    home = os.path.expanduser("~")
    if not os.path.isdir(home):
        return f"there is no {home}"
    return "" if os.access(home, os.W_OK | os.X_OK) else f"this user may not write to {home}"
