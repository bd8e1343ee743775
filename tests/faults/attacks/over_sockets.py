"""Attacks over WebSockets: on the handshake, on frames, and on what is answered."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from contextlib import suppress

from tests.faults.attacks.target import ECHO, STREAMED, Attacker, send_quietly
from tests.faults.attacks.watching import MIB
from tests.support.server import tensor
from zmqtriton_extras.web_sockets.frames import BINARY, CONTINUATION, PING, TEXT
from zmqtriton_extras.web_sockets.tests import conversations
from zmqtriton_extras.web_sockets.tests.conversations import client_frame


def handshake(attack: Attacker, model: str = ECHO) -> bytes:
    """Return a handshake of somebody who may ask."""
    headers = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    return attack.request(f"/v2/models/{model}/stream", b"", **headers)


def _open(
    attack: Attacker, count: int, data: bytes = b"", model: str = ECHO
) -> list[socket.socket]:
    """Open sockets that take little at once, and send behind the handshake."""
    return [*attack.connections(count, handshake(attack, model) + data, 4096)]


def handshakes(attack: Attacker) -> None:
    """Handshakes without end: of clients that leave at once, that stay, and half ones."""
    whole = handshake(attack)
    sizes = len(whole), len(whole) - 2
    attack.knock(lambda: whole[: attack.chance.choice(sizes)], leaving=0.8)


def idle(attack: Attacker) -> None:
    """More sockets than there may be, which say nothing."""
    _open(attack, attack.between(300, 800))


def strange_frames(attack: Attacker) -> None:
    """Conversations with wrong masks, reserved bits, lengths and parts."""
    counts = Counter[str]()
    start = handshake(attack)
    attack.knock(lambda: start + conversations.make(attack.chance, counts), (0, 0.01), room=4096)


def pings(attack: Attacker) -> None:
    """Pings without end, whose pongs are not read, and empty parts of a message."""
    many = client_frame(PING, bytes(attack.chance.choice((0, 125)))) * 500
    parts = client_frame(CONTINUATION, b"", is_last=False) * 500
    begun = client_frame(TEXT, b"", is_last=False)
    _send_on(attack, _open(attack, attack.between(4, 60), begun), (many, parts))


def giant_messages(attack: Attacker) -> None:
    """Messages of which much comes, in one frame or in many, and never all."""
    head = b"\x82\xff" + attack.between(MIB, 64 * MIB).to_bytes(8, "big") + b"\1\2\3\4"
    part = bytes(attack.between(64 << 10, 4 * MIB))
    in_parts = client_frame(BINARY, b"", is_last=False)
    frame = client_frame(CONTINUATION, part, is_last=False)
    for number, connection in enumerate(_open(attack, attack.between(4, 40))):
        connection.settimeout(0.5)
        send_quietly(connection, head + part if number % 2 == 0 else in_parts + frame * 8)


def unread_streams(attack: Attacker) -> None:
    """Streams of a model, several on each socket, that are not read."""
    inputs = [tensor("COUNT", "INT32", [2_000_000_000])]
    request = client_frame(TEXT, json.dumps({"id": "a", "inputs": inputs}).encode())
    _open(attack, attack.between(10, 100), request * attack.between(1, 8), STREAMED)


def unread_answers(attack: Attacker) -> None:
    """Requests without end, wrong ones too, whose answers are not read."""
    inputs = [tensor("INPUT0", "FP32", [5])]
    right = client_frame(TEXT, json.dumps({"inputs": inputs}).encode()) * 50
    wrong = client_frame(TEXT, b"{" * attack.between(1, 1000)) * 50
    _send_on(attack, _open(attack, attack.between(4, 60)), (right, wrong))


def slow_messages(attack: Attacker) -> None:
    """Messages that come byte by byte."""
    attack.trickle(_open(attack, attack.between(30, 200)), client_frame(TEXT, b"x" * 60_000), 0.05)


def _send_on(attack: Attacker, connections: list[socket.socket], kinds: tuple[bytes, ...]) -> None:
    """Send as much as the server takes; what it takes in part goes on where it stood."""
    rest = dict.fromkeys(connections, b"")
    for connection in connections:
        connection.setblocking(False)
    while not attack.is_over:
        for connection in connections:
            data = rest[connection] or attack.chance.choice(kinds)
            with suppress(OSError):
                rest[connection] = data[connection.send(data) :]
        time.sleep(0.01)


ATTACKS = {
    "WebSockets, handshakes without end": handshakes,
    "WebSockets that say nothing": idle,
    "WebSockets, strange frames": strange_frames,
    "WebSockets, pings and empty parts": pings,
    "WebSockets, messages that never end": giant_messages,
    "WebSockets, streams not read": unread_streams,
    "WebSockets, answers not read": unread_answers,
    "WebSockets, messages byte by byte": slow_messages,
}
