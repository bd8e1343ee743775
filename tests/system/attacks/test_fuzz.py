"""10,000 broken messages at each door of the server: it counts them, and goes on as before."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import psutil
import pytest

from tests.support.scraping import sum_series
from tests.support.server import Server, ask_add_sub, tensor
from tests.support.waiting import eventually
from zmqtriton_floor import wire

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=["add_sub", "intruder"]),
]

COUNT = 10_000


@pytest.fixture
def server(running: Server) -> Server:
    """As it is, without the check of a folder whose attacks end no stub."""
    return running


def _intrude(server: Server, door: str, count: int) -> None:
    """The answer may be one of the intruder's own forgeries, so it is not looked at."""
    inputs = tensor("DOOR", "BYTES", [door]), tensor("COUNT", "INT32", [count])
    server.infer_json("intruder", *inputs, within_s=300)


def _memory(server: Server) -> int:
    return sum(
        psutil.Process(pid).memory_info().rss for pids in server.pids().values() for pid in pids
    )


def _honest(server: Server) -> dict[str, list[int]]:
    """The processes but the intruder's, which is replaced some time after it broke its protocol."""
    return {**server.pids(), "stub": server.stub_pids("add_sub")}


def _malformed(server: Server, place: str) -> float:
    return sum_series(server, "zmqtriton_malformed_messages_total", place=place)


@pytest.mark.parametrize(
    ("door", "place"),
    [("stubs", "broker"), ("requests", "broker"), ("lifeline", "supervisor")],
)
def test_broken_messages_are_counted_and_change_nothing(
    server: Server, door: str, place: str
) -> None:
    for _ in range(3):
        _intrude(server, "nothing", 0)  # something to record
    assert 200 == ask_add_sub(server)
    pids, memory, counted = _honest(server), _memory(server), _malformed(server, place)

    _intrude(server, door, COUNT)

    def counts() -> bool:
        return _malformed(server, place) >= counted + COUNT // 4

    eventually(counts, 60, "the broken messages are counted")
    assert 200 == ask_add_sub(server)
    eventually(lambda: pids == _honest(server), 60, f"{pids} go on")
    assert _memory(server) < memory + (64 << 20)


def test_broken_messages_at_the_control_socket_change_nothing(server: Server) -> None:
    chance = random.Random(3)
    samples = [wire.encode(wire.Call(1, verb, "{}")) for verb in ("index", "status", "nobody")]
    pids, memory, counted = _honest(server), _memory(server), _malformed(server, "supervisor")
    path = str(Path(server.directory).parent / "run" / "ctl")

    connection = _connect(path)
    for number in range(COUNT):
        data = bytearray(chance.choice(samples))
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        packet = chance.choice([b"\x01", b"\x00", b"\x09"]) + bytes(data)
        try:
            connection.send(packet if number % 2 else chance.randbytes(100))
        except OSError:  # it may hang up on who talks nonsense
            connection.close()
            connection = _connect(path)
    connection.close()

    assert 200 == ask_add_sub(server)
    eventually(lambda: pids == _honest(server), 60, f"{pids} go on")
    assert _memory(server) < memory + (64 << 20)
    eventually(lambda: _malformed(server, "supervisor") > counted, 30, "they are counted")


def _connect(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(10)
    connection.connect(path)
    return connection
