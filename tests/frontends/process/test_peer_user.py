"""Clients of a process: users, hosts and TLS, and the lines of the log on them."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.support.certificates import Authority, CertificatePair
from tests.support.scenarios import scenario
from zmqtriton_floor.logs import LogOptions
from zmqtriton_floor.settings.frontends import Tls
from zmqtriton_frontends.http_api.server.service import PlainRequest
from zmqtriton_frontends.process import peer_user, request_log
from zmqtriton_frontends.process.client_progress import UNSENT_BYTES, limit_unsent_bytes
from zmqtriton_frontends.process.handshakes import Handshakes
from zmqtriton_frontends.process.hosts import AllowedHosts, host_refusal
from zmqtriton_frontends.process.peer_user import (
    UNKNOWN,
    Endpoint,
    find_in_tables,
    find_user,
    place_of,
)

# --------------------------------------------------------------------------- peer user
# The user at the other end of a connection.


SERVER = Endpoint("127.0.0.1", 8000)


CLIENT = Endpoint("127.0.0.1", 0x9C40)


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"  # noqa: E501


OURS = (
    "0: 0100007F:1F40 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 77 1"
)


_CONNECT = """
import os, socket, sys
family, host, port, user = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if user >= 0:
    os.setgroups([])
    os.setuid(user)
client = socket.socket(family)
client.connect((host, port))
print("connected", flush=True)
sys.stdin.read()
"""


def row(user: int, client: str = "0100007F:9C40", inode: int = 78, state: str = "01") -> str:
    ends = f"{client} 0100007F:1F40 {state}"
    return f"1: {ends} 00000000:00000000 00:00000000 00000000 {user:5}        0 {inode} 1 ffff"


class Machine:
    """A /proc with tables of connections."""

    def __init__(self, directory: Path) -> None:
        self.proc = directory
        for path, text in (
            ("sys/kernel/overflowuid", "65534\n"),
            ("self/uid_map", "         0          0 4294967295\n"),
        ):
            (directory / path).parent.mkdir(parents=True)
            (directory / path).write_text(text)
        (directory / "net").mkdir()
        self.write("tcp")
        self.write("tcp6")

    def write(self, table: str, *rows: str) -> None:
        (self.proc / "net" / table).write_text(HEAD + "".join(f"{row}\n" for row in rows))

    def find(self, client: Endpoint = CLIENT, server: Endpoint = SERVER) -> int:
        return find_in_tables(client, server, self.proc)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_users_without_a_number_here_are_unknown(machine: Machine) -> None:
    machine.write("tcp", row(65534))
    assert 65534 == machine.find()

    (machine.proc / "self/uid_map").write_text("         0       1000          1\n")

    assert UNKNOWN == machine.find()
    machine.write("tcp", row(0))
    assert 0 == machine.find() == machine.find(server=SERVER._replace(host=""))
    assert UNKNOWN == machine.find(server=Endpoint("", SERVER.port + 1))


@contextmanager
def connected(family: int, host: str, user: int = UNKNOWN) -> Iterator[tuple[Endpoint, Endpoint]]:
    """Connect in a process of that user; yield the ends."""
    with socket.create_server((host, 0), family=family, dualstack_ipv6=host == "::") as listener:
        port = listener.getsockname()[1]
        place = "127.0.0.1" if family == socket.AF_INET or host == "::" else "::1"
        own = socket.AF_INET if ":" not in place else socket.AF_INET6
        words = [str(number) for number in (int(own), place, port, user)]
        with subprocess.Popen(
            [sys.executable, "-c", _CONNECT, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            connection, _ = listener.accept()
            with connection:
                yield place_of(connection.getpeername()), place_of(connection.getsockname())
            process.communicate(timeout=60)


@pytest.mark.parametrize(
    ("family", "host"),
    [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::")],
)
def test_the_kernel_knows_who_connects(family: int, host: str) -> None:
    if host != "127.0.0.1" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    with connected(family, host) as (client, server):
        assert os.geteuid() == find_user(client, server)
        assert os.geteuid() == find_user(client, Endpoint("", server.port))


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone has processes of other users")
def test_the_kernel_tells_users_apart() -> None:
    with connected(socket.AF_INET, "127.0.0.1", 4711) as (client, server):
        assert 4711 == find_user(client, server)


def test_one_connection_is_asked_for_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not peer_user.may_ask():
        pytest.skip("this kernel answers no question about one connection")
    with connected(socket.AF_INET, "127.0.0.1") as (client, server):
        monkeypatch.delattr(peer_user, "find_in_tables")

        assert os.geteuid() == find_user(client, server)
        assert UNKNOWN == find_user(client._replace(host="127.0.0.2"), server)
    assert UNKNOWN == find_user(client, server), "it is closed"


def test_what_listens_at_the_place_of_a_client_is_not_the_client() -> None:
    """A client on another machine may have an address and a port that somebody listens at here."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert UNKNOWN == find_user(place_of(listener.getsockname()), SERVER)


def test_a_client_that_is_bound_to_an_interface_is_found() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket() as client,
    ):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
        client.connect(listener.getsockname())
        connection, _ = listener.accept()
        with connection:
            ends = place_of(connection.getpeername()), place_of(connection.getsockname())

            assert os.geteuid() == find_user(*ends)


# ------------------------------------------------------------------------------- hosts
# Which names a client may use for the server.


@pytest.mark.parametrize("listening", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
@pytest.mark.parametrize(
    ("host", "is_admitted"),
    [
        *[(host, True) for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:8000", "[::1]:1")],
        *[(host, True) for host in ("10.0.0.7", "desk.example:80")],
        *[(host, False) for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil")],
        *[(host, False) for host in ("", "a b", "localhost:8000:1", "[::1", "x@localhost")],
    ],
)
def test_a_server_for_this_machine_answers_to_its_own_names(
    listening: str, host: str, is_admitted: bool
) -> None:
    assert AllowedHosts(listening, ["desk.example"]).admits(host) is is_admitted


def test_any_name_will_do_where_others_may_connect_and_none_is_given() -> None:
    assert AllowedHosts("0.0.0.0", []).admits("evil.example")
    assert not AllowedHosts("0.0.0.0", ["desk.example"]).admits("evil.example")


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("Models.example:8000", "start the server with --http-allowed-host=models.example, or "),
        ("a b", "Host 'a b' is not allowed: it is no valid name"),
        ("a\x1b[31m\xe9", "Host 'a?[31m?' is not allowed: it is no valid name"),
    ],
)
def test_a_refusal_names_the_option(host: str, text: str) -> None:
    assert text in host_refusal(host)


def test_a_refusal_gives_back_no_more_than_a_name() -> None:
    assert host_refusal("Models.example:80").startswith("Host 'models.example' is not allowed: ")
    for host in ("a" * 10_000, " " * 10_000):
        assert len(host_refusal(host)) < 320


# --------------------------------------------------------------------------------- tls
# Certificates of a port that change: new ones are taken whole, or the ones before stay.


class Port:
    """The files of a port, and what it shows."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "authority")
        self.pair = CertificatePair(directory / "server.crt", directory / "server.key")
        self.root = directory / "root.crt"
        shutil.copy(self.authority.cert, self.root)
        self.first = self.authority.issue("first")
        self.copy(self.first.cert, self.pair.cert)
        self.copy(self.first.key, self.pair.key)
        tls = Tls(str(self.pair.cert), str(self.pair.key), str(self.root))
        self.handshakes = Handshakes(tls, "HTTP", "http/1.1", PlainRequest)

    def copy(self, source: Path, target: Path) -> None:
        """Copy as people do, over the old file."""
        target.write_bytes(source.read_bytes())

    def shake_hands(self, client: CertificatePair) -> bytes | None:
        """Return the certificate that a client is shown; None if the two do not agree."""
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=str(self.authority.cert))
        context.load_cert_chain(*client)
        ours = self.handshakes.context.wrap_bio(to_server, to_client, server_side=True)
        theirs = context.wrap_bio(to_client, to_server, server_hostname="localhost")
        try:
            for _ in range(4):
                for side in (theirs, ours):
                    try:
                        side.do_handshake()
                    except ssl.SSLWantReadError:
                        continue
        except ssl.SSLError:
            return None
        return theirs.getpeercert(binary_form=True)


def der_of(pair: CertificatePair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.cert.read_text())


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return Port(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["cert", "key"])
def test_while_certificate_and_key_do_not_fit_the_ones_before_serve(
    port: Port, first: str, caplog: pytest.LogCaptureFixture
) -> None:
    renewed = port.authority.issue("renewed")
    port.copy(getattr(renewed, first), getattr(port.pair, first))

    for _ in range(3):
        port.handshakes.read_newest()
        assert der_of(port.first) == port.shake_hands(renewed)

    warnings = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert [text.partition(" has changed and cannot be used")[0] for text in warnings] == [
        "the certificate of HTTP"
    ]
    for source, target in zip(renewed, port.pair, strict=True):
        port.copy(source, target)
    port.handshakes.read_newest()
    assert der_of(renewed) == port.shake_hands(renewed)


@pytest.mark.slow
def test_an_authority_that_was_replaced_signs_for_nobody(port: Port, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other", "other")
    stranger, friend = other.issue("client"), port.authority.issue("client")
    assert port.shake_hands(friend)
    assert not port.shake_hands(stranger)

    port.copy(other.cert, port.root)
    port.handshakes.read_newest()

    assert port.shake_hands(stranger)
    assert not port.shake_hands(friend)


@pytest.mark.slow
def test_files_that_did_not_change_are_read_once(port: Port) -> None:
    before = port.handshakes.context

    port.handshakes.read_newest()

    assert before is port.handshakes.context


# ------------------------------------------------------------------------- slow client
# The pace of a slow client, as the kernel is told to keep it.


@scenario(uvloop.run)
async def test_a_connection_that_is_closed_already_has_no_pace() -> None:
    """Between encrypted ones and their protocols the end of a connection takes a turn."""
    accepted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            accepted.set_result(transport)

    server = await asyncio.get_running_loop().create_server(Accepting, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()):
        connection = (transport := await accepted).get_extra_info("socket")
        limit_unsent_bytes(connection)
        kept = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)
        transport.abort()
        await asyncio.sleep(0.01)

        limit_unsent_bytes(transport.get_extra_info("socket"))
        limit_unsent_bytes(None)
    server.close()
    assert UNSENT_BYTES == kept


# ------------------------------------------------------------------------- request log


@pytest.mark.parametrize(("verbose", "is_on"), [(0, False), (1, True)])
def test_requests_are_logged_where_verbose_lines_are_written(
    verbose: int, is_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_log, "is_on", not is_on)

    request_log.follow(LogOptions(verbose=verbose))

    assert is_on == request_log.is_on
