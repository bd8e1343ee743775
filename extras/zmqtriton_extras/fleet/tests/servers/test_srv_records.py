"""SRV records from a name server that the test plays, over UDP and TCP."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from zmqtriton_extras.fleet.servers import sources
from zmqtriton_extras.fleet.servers.sources import SrvRecord, find_nodes, look_up
from zmqtriton_floor.errors import InvalidArgument, NotFound

NAME = "_zmqtriton._tcp.example"
RECORDS = [SrvRecord(10, 5, 8000, "b.example"), SrvRecord(5, 1, 8000, "a.example")]


def encode_name(name: str) -> bytes:
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"


def answer(question: bytes, *, flags: int = 0x8180) -> bytes:
    """The words of a name server: the question again, then records with pointers."""
    body = b""
    records = [] if flags & 0xF else RECORDS
    for priority, weight, port, target in records:
        # `example` stands at the end of the question's name
        example = 12 + len(encode_name(NAME)) - len(encode_name("example"))
        first = target.split(".", maxsplit=1)[0]
        name = bytes([len(first)]) + first.encode() + struct.pack("!H", 0xC000 | example)
        data = struct.pack("!3H", priority, weight, port) + name
        body += struct.pack("!HHHIH", 0xC00C, 33, 1, 60, len(data)) + data
    head = question[:2] + struct.pack("!5H", flags, 1, len(records), 0, 0)
    return head + question[12:] + body


@contextmanager
def name_server(flags: int) -> Iterator[tuple[str, int]]:
    """A server that answers one question over UDP with these flags, and then one over TCP."""
    with socket.socket() as listener, socket.socket(type=socket.SOCK_DGRAM) as end:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        end.bind(listener.getsockname())

        def serve() -> None:
            question, client = end.recvfrom(4096)
            end.sendto(answer(question, flags=flags), client)
            if flags & 0x0200:
                connection, _ = listener.accept()
                with connection, connection.makefile("rwb") as stream:
                    (size,) = struct.unpack("!H", stream.read(2))
                    said = answer(stream.read(size))
                    stream.write(struct.pack("!H", len(said)) + said)

        thread = threading.Thread(target=serve)
        thread.start()
        yield end.getsockname()
        thread.join(30)


@pytest.mark.parametrize("flags", [0x8180, 0x8380], ids=["udp", "truncated"])
def test_records_come_with_the_preferred_first(flags: int) -> None:
    with name_server(flags) as address:
        assert sorted(RECORDS) == look_up(NAME, [address])


def test_a_name_that_is_not_known_is_an_error() -> None:
    with (
        name_server(0x8183) as address,
        pytest.raises(NotFound, match="does not know '_zmqtriton"),
    ):
        look_up(NAME, [address])


@pytest.mark.slow
def test_a_server_that_refuses_leaves_the_question_to_the_next_one() -> None:
    with name_server(0x8185) as first, name_server(0x8180) as second:
        assert sorted(RECORDS) == look_up(NAME, [first, second])
    with pytest.raises(InvalidArgument, match="no answer about"):
        look_up(NAME, [("127.0.0.1", 9)])


def test_a_server_that_ends_the_connection_is_no_answer() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(type=socket.SOCK_DGRAM) as end,
    ):
        end.bind(listener.getsockname())

        def serve() -> None:
            question, client = end.recvfrom(4096)
            end.sendto(answer(question, flags=0x8380), client)
            listener.accept()[0].close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(InvalidArgument, match="no answer about"):
            look_up(NAME, [end.getsockname()])
        thread.join(30)


@pytest.mark.parametrize("name", ["", ".", "a..b", "a" * 64])
def test_a_name_with_a_wrong_label_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"'{name}'"):
        look_up(name, [("127.0.0.1", 9)])


def test_the_servers_of_a_name_share_their_further_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    with name_server(0x8180) as address:
        monkeypatch.setattr(sources, "look_up", lambda name: look_up(name, [address]))
        nodes = find_nodes([f"srv:{NAME},grpc=8001"])

    assert [(node.http, node.grpc) for node in nodes] == [
        ("a.example:8000", "a.example:8001"),
        ("b.example:8000", "b.example:8001"),
    ]
