"""Hostile documents as messages of WebSockets: requests, and events of OpenAI's."""

from __future__ import annotations

import functools
import random
import socket
import struct
from collections.abc import Iterator

from tests.faults.attacks.hostile import (
    PATIENCE_S,
    VICTIM,
    Answer,
    Attack,
    House,
    drawn,
    many,
    member,
)
from tests.support.server import Server

_ATTACKER = "127.0.0.3"
_PATHS = (f"/v2/models/{VICTIM}/stream", "/v1/realtime?model=parrot")


def send_message(port: int, path: str, text: bytes, opcode: int = 1) -> Answer:
    """Return status 101 once a message was answered, and the beginning of the answer."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S, (_ATTACKER, 0)) as connection:
        head = (
            f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: websocket\r\n"
            "connection: upgrade\r\nsec-websocket-version: 13\r\n"
            "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        connection.sendall(head.encode())
        reader = connection.makefile("rb")
        while reader.readline().strip():
            pass
        if "realtime" in path:
            size = reader.read(4)  # of the event that a session begins with
            reader.read(int.from_bytes(size[2:], "big"))
        begin = bytes((0x80 | opcode, 0xFF)) + struct.pack(">Q", len(text)) + bytes(4)
        try:
            connection.sendall(begin + text)
            return Answer(101 if reader.read(2) else 0, str(reader.read1(200), "utf-8", "replace"))
        except OSError:
            return Answer(0)


def attacks(server: Server, chance: random.Random) -> Iterator[Attack]:
    def message(path: str, name: str, text: bytes, opcode: int = 1) -> Attack:
        sending = functools.partial(send_message, server.http_port, path, text, opcode)
        return Attack(f"WebSocket {path.partition('?')[0]}", name, len(text), sending)

    for name, element in {"[[1,2],…": b"[1,2]", "floats": b"0.1234", "[]": b"[]"}.items():
        data = many(element, 8)
        entry = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[%d],"data":%b}]}'
        yield message(_PATHS[0], name, entry % (data.count(b",") + 1, data))
    for path in _PATHS:
        name, text = drawn(chance)
        yield message(path, name, text)
        yield message(path, f"binary {name}", len(text).to_bytes(4, "little") + text, 2)
        for kind, field in (("session.update", "session"), ("conversation.item.create", "item")):
            name, text = drawn(chance)
            body = b'{"type":"%b","%b":%b}' % (kind.encode(), field.encode(), member("a", text))
            yield message(path, f"{kind} {name}", body)


HOUSE = House(attacks, lambda _: ("--allow-openai",))
