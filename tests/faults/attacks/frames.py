"""Floods of HTTP/2 by the type of frame, the state of its stream, its form, and the rate."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

from tests.faults.attacks.target import Attacker
from tests.support import raw_http2 as h2

_PRIORITY, _PUSH, _UNKNOWN = 2, 5, 0x77
_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
KINDS = (
    h2.DATA,
    h2.HEADERS,
    _PRIORITY,
    h2.RESET,
    h2.SETTINGS,
    _PUSH,
    h2.PING,
    h2.GOAWAY,
    h2.WINDOW,
    h2.CONTINUATION,
    _UNKNOWN,
)
#: The stream that the frames are on, and what is sent before them.
STATES: dict[str, Callable[[], tuple[int, bytes]]] = {
    "the connection": lambda: (0, b""),
    "idle": lambda: (2_000_001, b""),
    "even": lambda: (4, h2.headers_frame(1, _STREAM)),
    "open": lambda: (1, h2.headers_frame(1, _STREAM)),
    "half closed": lambda: (
        1,
        h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 1, h2.header_block(_STREAM)),
    ),
    "reset": lambda: (1, h2.headers_frame(1, _STREAM) + h2.reset_frame(1)),
    "amid headers": lambda: (1, h2.frame(h2.HEADERS, 0, 1, h2.header_block(_STREAM))),
    "unknown": lambda: (1, h2.headers_frame(1, "/a.B/C")),
}
#: Frames a second; 0 is as many as there may be.
RATES = (0, 0, 20_000, 2_000, 200)


def payload(kind: int, attack: Attacker) -> bytes:
    """Return one that the type has, or one of any size."""
    chance = attack.chance
    if chance.random() < 0.2:
        return chance.randbytes(attack.between(1, 4000) - 1)
    makers: dict[int, Callable[[], bytes]] = {
        h2.DATA: lambda: bytes(chance.choice((0, 1, 5, 1000))),
        h2.HEADERS: lambda: h2.header_block("/a.B/C"),
        _PRIORITY: lambda: bytes(5),
        h2.RESET: lambda: struct.pack(">I", chance.randrange(14)),
        h2.SETTINGS: lambda: struct.pack(
            ">HI", chance.randint(1, 6), chance.choice((0, 1, 65_535, 1 << 20))
        ),
        _PUSH: lambda: struct.pack(">I", 2) + h2.header_block("/a.B/C"),
        h2.PING: lambda: bytes(8),
        h2.GOAWAY: lambda: bytes(8),
        h2.WINDOW: lambda: struct.pack(">I", chance.choice((0, 1, 65_535, 2**31 - 1))),
        h2.CONTINUATION: lambda: chance.choice((b"", b"\x82", b"\x00\x01a\x01b")),
        _UNKNOWN: lambda: bytes(chance.randrange(20)),
    }
    return makers[kind]()


def frames_by_state(attack: Attacker) -> None:
    """One combination after the other; a connection that is ended is followed by the next."""
    while not attack.is_over:
        kind, rate = attack.chance.choice(KINDS), attack.chance.choice(RATES)
        number, first = STATES[attack.chance.choice(sorted(STATES))]()
        flags = attack.chance.choice((0, 0, 1, 4, 5, 8, 0x20))
        moves_on = kind in (h2.HEADERS, h2.RESET) and attack.chance.random() < 0.5
        client = attack.call()
        if client is None:
            time.sleep(0.05)
            continue
        client.send_within(0.5, first)
        end = min(attack.end, time.monotonic() + attack.chance.uniform(0.2, 3.0))
        at_once = max(1, min(500, rate // 20 or 500))
        while time.monotonic() < end:
            many = []
            for _ in range(at_once):
                many.append(h2.frame(kind, flags, number, payload(kind, attack)))
                number += 2 if moves_on else 0
            if not client.send_within(0.2, *many):
                break
            client.read_some(1 << 16)
            if rate:
                time.sleep(at_once / rate)
        client.close()
        time.sleep(0.01)


ATTACKS = {"frames by type, state and rate": frames_by_state}
