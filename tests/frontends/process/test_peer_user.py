"""The user at the other end of a connection."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from zmqtriton_frontends.process import peer_user
from zmqtriton_frontends.process.peer_user import (
    UNKNOWN,
    Place,
    find_in_tables,
    find_user,
    place_of,
)

SERVER = Place("127.0.0.1", 8000)
CLIENT = Place("127.0.0.1", 0x9C40)
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

    def find(self, client: Place = CLIENT, server: Place = SERVER) -> int:
        return find_in_tables(client, server, self.proc)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_row_of_the_other_end_has_its_user(machine: Machine) -> None:
    machine.write("tcp", OURS, row(1000), row(1001, "0100007F:9C41"))

    assert 1000 == machine.find()
    assert 1001 == machine.find(CLIENT._replace(port=0x9C41))
    assert 1000 == machine.find(server=Place("", 8000))
    assert 1000 == machine.find(Place("::ffff:127.0.0.1", 0x9C40), Place("::ffff:127.0.0.1", 8000))
    assert UNKNOWN == machine.find(server=SERVER._replace(port=8001))
    assert UNKNOWN == machine.find(CLIENT._replace(host="127.0.0.2"))
    assert UNKNOWN == machine.find(*[place_of(None)] * 2)


def test_clients_that_use_wide_sockets_for_narrow_addresses_are_found(machine: Machine) -> None:
    mapped = "0000000000000000FFFF0000"
    ends = f"{mapped}0100007F:9C40 {mapped}0100007F:1F40"
    machine.write("tcp6", row(1000).replace("0100007F:9C40 0100007F:1F40", ends))

    assert 1000 == machine.find()


def test_a_connection_that_was_closed_is_nobody_s(machine: Machine) -> None:
    machine.write("tcp", OURS, row(0, inode=0, state="05"))

    assert UNKNOWN == machine.find()


def test_users_without_a_number_here_are_unknown(machine: Machine) -> None:
    machine.write("tcp", row(65534))
    assert 65534 == machine.find()

    (machine.proc / "self/uid_map").write_text("         0       1000          1\n")

    assert UNKNOWN == machine.find()
    machine.write("tcp", row(0))
    assert 0 == machine.find()


@contextmanager
def connected(family: int, host: str, user: int = UNKNOWN) -> Iterator[tuple[Place, Place]]:
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
        assert os.geteuid() == find_user(client, Place("", server.port))


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone has processes of other users")
def test_the_kernel_tells_users_apart() -> None:
    with connected(socket.AF_INET, "127.0.0.1", 4711) as (client, server):
        assert 4711 == find_user(client, server)


def test_one_connection_is_asked_for_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not peer_user._may_ask():
        pytest.skip("this kernel answers no question about one connection")
    with connected(socket.AF_INET, "127.0.0.1") as (client, server):
        monkeypatch.delattr(peer_user, "find_in_tables")

        assert os.geteuid() == find_user(client, server)
        assert UNKNOWN == find_user(client._replace(host="127.0.0.2"), server)
    assert UNKNOWN == find_user(client, server), "it is closed"


def test_what_listens_at_the_place_of_a_client_is_not_the_client() -> None:
    """A client on another machine may have an address and a port that somebody listens at here."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = place_of(listener.getsockname())

        assert UNKNOWN == find_user(place, SERVER)


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


def test_where_nobody_may_ask_the_tables_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_user, "_may_ask", lambda: False)
    with connected(socket.AF_INET, "127.0.0.1") as (client, server):
        assert os.geteuid() == find_user(client, server)
