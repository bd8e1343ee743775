"""Sockets that listen, and ports that processes share."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.refusals import refusal
from zmqtriton.options import Options
from zmqtriton.start import listeners
from zmqtriton.start.listeners import BoundSocket, PortError
from zmqtriton.start.ports import SharedPort
from zmqtriton.supervisor.machine.control_socket import ControlSocket
from zmqtriton.systemd import PassedSocket
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_floor.wire import Call

# --------------------------------------------------------------------------- listeners


def options(**values: Any) -> Options:
    loopback = {"http_address": "127.0.0.1", "grpc_address": "127.0.0.1"}
    ports = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}
    return Options(**{**loopback, **ports, **values})


@pytest.fixture
def held() -> Iterator[dict[str, BoundSocket]]:
    bound = listeners.bind_all(options())
    yield bound
    listeners.close_all(bound)


def ports(held: dict[str, BoundSocket]) -> dict[str, int]:
    return {
        "http_port": held["http-arbiter"].port,
        "grpc_port": held["grpc"].port,
        "metrics_port": held["metrics"].port,
    }


@pytest.mark.row("D47", "--http-port", "--grpc-port", "--metrics-port")
@pytest.mark.parametrize(
    ("name", "service"),
    [("http_port", "HTTP"), ("grpc_port", "GRPC"), ("metrics_port", "Metrics")],
)
def test_a_port_in_use_is_an_error_even_if_nobody_listens_yet(
    held: dict[str, BoundSocket], name: str, service: str
) -> None:
    port = ports(held)[name]

    assert refusal(PortError, lambda: listeners.bind_all(options(**{name: port}))) == (
        f"failed to start {service} service: Unavailable - Socket '127.0.0.1:{port}' already in "
        f"use - choose another port with --{name.replace('_', '-')}"
    )


def test_processes_of_grpcio_can_share_its_port() -> None:
    held = listeners.bind_all(options(grpc_transport="grpcio"))
    for _ in range(2):
        with socket.socket() as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            own.bind(("127.0.0.1", held["grpc"].port))
            own.listen()
    listeners.close_all(held)


@pytest.mark.parametrize(("other", "roles"), [("::1", 2), ("2001:db8::1", 1)])
def test_grpc_has_a_name_s_address_of_each_family_that_the_machine_has(
    other: str, roles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = socket.getaddrinfo

    def resolve_name(host: str, port: int, *rest: Any, **more: Any) -> Any:
        hosts = ("127.0.0.1", other) if host == "name" else (host,)
        return [row for each in hosts for row in resolve(each, port, *rest, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve_name)

    held = listeners.bind_all(options(grpc_address="name"))

    of_grpc = [held[role] for role in ("grpc", "grpc-other-family") if role in held]
    assert ["127.0.0.1", other][:roles] == [each.address for each in of_grpc]
    assert 1 == len({each.port for each in of_grpc})
    listeners.close_all(held)


def test_connections_of_an_earlier_server_are_no_reason_to_fail(
    held: dict[str, BoundSocket],
) -> None:
    listener = held["http-arbiter"]
    port = listener.port
    listeners.allow_address_reuse(held)
    listener.socket.listen()
    client = socket.create_connection(("127.0.0.1", port))
    accepted, _ = listener.socket.accept()
    accepted.close()  # the server's side closes first, and waits
    client.close()
    listener.socket.close()

    listeners.close_all(listeners.bind_all(options(http_port=port)))


@pytest.mark.row("--allow-http", "--allow-grpc")
def test_what_is_not_wanted_is_not_bound() -> None:
    bound = listeners.bind_all(options(allow_grpc=False, allow_metrics=False))

    assert list(bound) == ["http-arbiter"]
    listeners.close_all(bound)


@pytest.mark.row("--http-address")
def test_an_address_that_is_not_ours_is_an_error() -> None:
    with pytest.raises(PortError, match=r"unable to bind '192\.0\.2\.1:0'"):
        listeners.bind_all(options(http_address="192.0.2.1"))


@pytest.mark.row("--metrics-address")
def test_metrics_follow_the_address_of_http() -> None:
    bound = listeners.bind_all(options())

    assert bound["metrics"].socket.getsockname()[0] == "127.0.0.1"
    listeners.close_all(bound)


@pytest.mark.row("--reuse-http-port", "--reuse-grpc-port", "D47")
@pytest.mark.parametrize(("name", "service"), [("http", "HTTP"), ("grpc", "GRPC")])
def test_a_port_is_shared_by_servers_that_both_say_so(name: str, service: str) -> None:
    sharing: dict[str, Any] = {f"reuse_{name}_port": True}
    first = listeners.bind_all(options(**sharing))
    port = ports(first)[f"{name}_port"]

    second = listeners.bind_all(options(**sharing, **{f"{name}_port": port}))

    assert port == ports(second)[f"{name}_port"]
    with pytest.raises(PortError, match=f"failed to start {service} service"):
        listeners.bind_all(options(**{f"{name}_port": port}))
    for held in (first, second):
        listeners.close_all(held)


def test_an_address_of_ipv6_on_a_machine_without_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = socket.socket

    def open_socket(family: int = socket.AF_INET, *arguments: Any, **values: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        return real(family, *arguments, **values)

    monkeypatch.setattr(socket, "socket", open_socket)

    text = "'::' is of IPv6, which this machine has not - name another address with --http-address"
    with pytest.raises(PortError, match=text):
        listeners.bind_all(options(http_address="::"))


@pytest.fixture
def passed() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def adopt(listener: socket.socket, name: str, **values: Any) -> tuple[Options, BoundSocket]:
    copy = PassedSocket(os.dup(listener.fileno()), name)
    adopted, by_role = listeners.adopt(options(**values), [copy])
    (bound,) = by_role.values()
    bound.socket.close()
    return adopted, bound


def test_a_passed_socket_without_a_known_name_is_for_the_service_of_its_port(
    passed: socket.socket,
) -> None:
    port = passed.getsockname()[1]

    assert "grpc" == adopt(passed, "zmqtriton.socket", grpc_port=port)[1].role
    assert "metrics" == adopt(passed, "metrics", grpc_port=port)[1].role


def test_what_is_passed_must_listen(tmp_path: Path) -> None:
    with socket.socket() as silent, pytest.raises(PortError, match="must be a listening"):
        adopt(silent, "http")
    with (tmp_path / "file").open("w") as file, pytest.raises(PortError, match="non-socket"):
        listeners.adopt(options(), [PassedSocket(file.fileno(), "http")])


# ---------------------------------------------------------------------- control socket


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="zt", dir="/tmp") as name:
        yield Path(name) / "ctl"


def call(path: Path) -> Lifeline:
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end.connect(str(path))
    line = Lifeline(end)
    line.send(Call(1, "status", "{}"))
    return line


def test_a_process_of_the_same_user_is_heard(path: Path) -> None:
    control = ControlSocket(path, SimpleNamespace(stub_pids=frozenset))
    caller = call(path)

    accepted = control.accept()

    assert accepted is not None
    line, pid = accepted
    assert pid == os.getpid()
    assert [Call(1, "status", "{}")] == [message for message, _ in line.receive()]
    assert path.stat().st_mode & 0o777 == 0o600
    for end in (caller, line, control):
        end.close()


@pytest.mark.parametrize("relation", ["itself", "its group", "its ancestor"])
def test_what_belongs_to_a_stub_is_not_heard(path: Path, relation: str) -> None:
    stub = {"itself": os.getpid(), "its group": os.getpgid(0), "its ancestor": os.getppid()}
    control = ControlSocket(path, SimpleNamespace(stub_pids=lambda: {stub[relation]}))
    caller = call(path)

    assert control.accept() is None

    caller.wait(20)
    assert caller.receive() == []
    assert caller.ended
    caller.close()
    control.close()


def test_nobody_there_is_no_error(path: Path) -> None:
    control = ControlSocket(path, SimpleNamespace(stub_pids=frozenset))

    assert control.accept() is None

    control.close()


# ------------------------------------------------------------------------ shared ports
# New connections to a port of several servers, each played by a socket.


_MANY = 60


class Played:
    """A server on the port: its socket, and what the supervisor does with it."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.socket.bind((host, port))
        self.port = SharedPort(self.socket)

    def open(self) -> Played:
        self.port.before_listening()
        self.socket.listen(4096)
        self.socket.setblocking(False)
        self.port.take_back()
        self.port.look()
        return self

    def close(self) -> None:
        self.socket.close()

    def accept_all(self) -> int:
        """Return how many had connected."""
        count = 0
        while True:
            try:
                self.socket.accept()[0].close()
            except BlockingIOError:
                return count
            count += 1


class Street:
    """One port."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._number = 0
        self._stack = ExitStack()

    def server(self) -> Played:
        played = Played(self._host, self._number)
        self._number = played.socket.getsockname()[1]
        self._stack.callback(played.close)
        return played.open()

    def connect(self, *servers: Played) -> list[int]:
        """Connect often; return how many came to each server."""
        with ExitStack() as stack:
            for _ in range(_MANY):
                stack.enter_context(socket.create_connection((self._host, self._number), 10))
            return [server.accept_all() for server in servers]

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(params=["127.0.0.1"])
def street(request: pytest.FixtureRequest) -> Iterator[Street]:
    with closing(Street(request.param)) as street:
        yield street


@pytest.mark.row("--reuse-http-port", "--reuse-grpc-port")
@pytest.mark.parametrize("street", ["127.0.0.1", "::"], indirect=True)  # or of both families
def test_connections_go_to_the_other_server_until_they_are_taken_back(street: Street) -> None:
    old, new = street.server(), street.server()
    assert 0 not in street.connect(old, new)

    assert 1 == old.port.send_elsewhere()
    assert [0, _MANY] == street.connect(old, new)

    old.port.take_back()
    assert 0 not in street.connect(old, new)


def test_a_chain_of_servers_replaces_one_another(street: Street) -> None:
    old = street.server()
    for _ in range(3):
        new = street.server()
        assert not new.port.look(), "who is first is known when the other has gone"
        old.port.send_elsewhere()
        assert [0, _MANY] == street.connect(old, new)
        old.close()
        assert new.port.look()
        assert [_MANY] == street.connect(new)
        old = new


@pytest.mark.parametrize("leaving", range(3))
def test_of_three_servers_two_share_the_connections_of_the_one_that_leaves(
    street: Street, leaving: int
) -> None:
    servers = [street.server() for _ in range(3)]

    assert 2 == servers[leaving].port.send_elsewhere()

    counts = street.connect(*servers)
    assert 0 == counts.pop(leaving)
    assert 0 not in counts


def test_where_it_is_not_known_who_came_first_connections_go_to_all(street: Street) -> None:
    gone, middle, last = (street.server() for _ in range(3))
    gone.close()

    assert 1 == middle.port.send_elsewhere()

    assert 0 not in street.connect(middle, last)


def test_a_server_that_is_alone_keeps_its_connections(street: Street) -> None:
    alone = street.server()

    assert 0 == alone.port.send_elsewhere()

    assert [_MANY] == street.connect(alone)
