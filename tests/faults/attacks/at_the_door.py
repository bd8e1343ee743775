"""Attacks at the door: clients that ask and do not read, and messages that mean nothing."""

from __future__ import annotations

import struct
import time
from contextlib import suppress
from typing import Any

import zmq

from tests.faults.attacks.target import ECHO, SIZED, STREAMED, Attacker
from zmqtriton_extras.door.tests.raw_door import RawDoor, floats, tokens


def _connect(attack: Attacker, count: int) -> list[RawDoor]:
    doors = [
        attack.stack.enter_context(RawDoor(attack.target.door, receive_limit=1))
        for _ in range(count)
    ]
    for client in doors:
        client.socket.setsockopt(zmq.SNDTIMEO, 200)
    return doors


def _send(client: RawDoor, count: int, fields: dict[str, Any], *data: bytes) -> None:
    """Send a request so often, or until the server takes no more."""
    with suppress(zmq.Again):
        for _ in range(count):
            client.send("infer", fields, *data)


def unread(attack: Attacker) -> None:
    """Answers of all sizes, and streams, that are not read."""
    fields, *numbers = tokens(2_000_000_000)
    tensor = {"name": "KIB", "datatype": "INT32", "shape": [1]}
    for client in _connect(attack, attack.between(1, 12)):
        kib = attack.between(1, 32 << 10)
        kind = attack.chance.choice(("sized", "echoed", "streams"))
        requests: dict[str, tuple[Any, ...]] = {
            "streams": ({**fields, "model": STREAMED}, *numbers),
            "echoed": (floats(ECHO, kib << 8), bytes(kib << 10)),
            "sized": ({"model": SIZED, "inputs": [tensor]}, struct.pack("<i", kib)),
        }
        _send(client, min(2000, (512 << 10) // kib), *requests[kind])


def unread_echoes(attack: Attacker, clients: int, kib: int) -> None:
    """Tensors of that size that come back and are not read, 512 MiB for each client."""
    for client in _connect(attack, clients):
        _send(client, (512 << 10) // kib, floats(ECHO, kib << 8), bytes(kib << 10))


def nothing(attack: Attacker) -> None:
    """Messages that mean nothing, or ask for little, as fast as they are taken."""
    clients = _connect(attack, attack.between(1, 6))
    odd: tuple[Any, ...] = (b"", b"\x94\x01\xa1x\x01\x80", attack.chance.randbytes(40))
    while not attack.is_over:
        for client in clients:
            with suppress(zmq.Again):
                for _ in range(100):
                    client.socket.send_multipart([attack.chance.choice(odd)], zmq.NOBLOCK)
                    client.send("server.live")
        time.sleep(0.005)


ATTACKS = {"the door's answers, not read": unread, "nothing at the door": nothing}
