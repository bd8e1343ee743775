"""Attacks over gRPC: requests, messages, answers and headers; and on frames.

Floods of frames differ by their type, the state of their stream, their form, and the rate.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from tests.faults import floods
from tests.faults.attacks.target import ECHO, SIZED, Attacker, message_frames, pack
from tests.faults.attacks.watching import MIB
from tests.faults.requests import INFER, STREAM, grpc_request, int32
from tests.support import raw_http2 as h2

#: Nothing is read of the data, and all frames of an answer fit.
UNREAD = h2.PREFACE + h2.NO_WINDOW
#: As much of everything as there may be: what is not read stays in the sockets.
WIDE = h2.PREFACE + h2.settings_frame({4: 2**31 - 1})
WIDE += h2.frame(h2.WINDOW, 0, 0, (1 << 30).to_bytes(4, "big"))
#: What may be sent on a connection before one hears from the server, and on a stream.
_CONNECTION_BYTES, _STREAM_BYTES = 15 << 20, 1 << 20


def sized(kib: int) -> bytes:
    """Return a request whose answer is so large."""
    return bytes(grpc_request(SIZED, KIB=int32(kib)).SerializeToString())


def floats(size: int) -> bytes:
    """Return a request with an input of so many bytes."""
    tensor = ("FP32", (size // 4,), bytes(size // 4 * 4))
    return bytes(grpc_request(ECHO, INPUT0=tensor).SerializeToString())


def ask_on_stream(attack: Attacker, client: h2.Connection, kib: int, count: int) -> None:
    """Ask so often on one stream, each time for an answer of that size."""
    client.send_within(1.0, attack.begin(1, STREAM), h2.data_frame(1, sized(kib)) * count)


def ask_at_once(attack: Attacker, client: h2.Connection, kib: int, count: int) -> None:
    """Make so many calls at once, each for an answer of that size."""
    requests = b"".join(
        attack.begin(number, INFER) + h2.data_frame(number, sized(kib), flags=h2.END_STREAM)
        for number in range(1, 2 * count, 2)
    )
    client.send_within(1.0, requests)


def unread_streams(attack: Attacker) -> None:
    """Streams with many requests whose answers are not read."""
    first = attack.chance.choice((UNREAD, UNREAD, WIDE))
    total = attack.between(32, 4096)  # MiB that all answers come to
    clients = attack.between(1, 30)
    for _ in range(clients):
        kib = attack.between(1, 64 << 10)
        count = max(1, min(1024, (total << 10) // kib // clients))
        client = attack.call(first)
        if client is not None:
            ask_on_stream(attack, client, kib, count)


def unread_unary(attack: Attacker) -> None:
    """Unary calls, large ones and many small ones, whose answers are not read."""
    first = attack.chance.choice((UNREAD, WIDE))
    for client in attack.calls(attack.between(1, 30), first):
        kib = attack.between(1, 2048)
        ask_at_once(attack, client, kib, min(400, (400 << 10) // kib))


def slow_streams(attack: Attacker) -> None:
    """Large answers that are read a few KiB at a time."""
    opened = [*attack.calls(attack.between(2, 16), WIDE)]
    kib = attack.between(1 << 10, 64 << 10)
    for client in opened:
        data = h2.data_frame(1, sized(kib), flags=h2.END_STREAM)
        client.send_within(1.0, attack.begin(1, INFER), data)
    while not attack.is_over:
        for client in opened:
            client.read_some(2048)
        time.sleep(attack.chance.choice((0.1, 0.5, 1.0)))


def bombs(attack: Attacker, *, has_token: bool = True) -> None:
    """Compressed messages, requests among them, on calls and streams of several connections."""
    encoding = attack.chance.choice(("gzip", "deflate"))
    size = attack.between(MIB, 200 * MIB)
    kind = attack.chance.choice(("zeros", "a request", "a request", "many fields"))
    if kind == "zeros":
        data = bytes(size)
    elif kind == "a request":
        data = floats(size)
    else:  # two bytes each
        data = bytes((attack.chance.choice((4, 5, 6, 7)) << 3 | 2, 0)) * (size // 8)
    packed = pack(data, encoding)
    del data
    path = attack.chance.choice((INFER, STREAM))
    if not has_token:
        attack.target = attack.target._replace(token="")
    clients = attack.calls(attack.between(2, 12))
    whole = message_frames(1, packed, is_compressed=True)
    count = attack.between(1, max(1, min(40, _STREAM_BYTES // len(whole))))
    for client in clients:
        client.send_within(1.0, attack.begin(1, path, encoding=encoding), whole * count)


def endless_messages(attack: Attacker) -> None:
    """Messages of which much comes, and never all."""
    first = bytes((attack.chance.random() < 0.5,)) + (1 << 30).to_bytes(4, "big") + bytes(15_000)
    path = attack.chance.choice((INFER, STREAM))
    for client in attack.calls(attack.between(2, 16)):
        numbers = range(1, 2 * attack.between(4, 60), 2)
        begun = [attack.begin(n, path) + h2.frame(h2.DATA, 0, n, first) for n in numbers]
        client.send_within(1.0, *begun)
        more = [h2.frame(h2.DATA, 0, n, bytes(15_000)) for n in numbers]
        for _ in range(min(60, _CONNECTION_BYTES // 15_000 // len(numbers) - 1)):
            if not client.send_within(1.0, *more):
                break


def _string(data: bytes) -> bytes:
    return floods.length(len(data), 0) + data


def blocks_of_table(attack: Attacker, path: str, size: int, references: int) -> list[bytes]:
    """Return the headers of a thousand streams: one large entry, and references to it in each."""
    entry = b"\x40\x01a" + _string(b"v" * size)
    many = b"\xbe" * references
    blocks = [attack.begin(1, path, more=entry + many)]
    return blocks + [attack.begin(n, path, more=many) for n in range(3, 2001, 2)]


def send_blocks(client: h2.Connection, blocks: list[bytes]) -> None:
    for at in range(0, len(blocks), 50):
        if not client.send_within(0.5, *blocks[at : at + 50]):
            break


def open_streams(attack: Attacker) -> None:
    """Streams with much metadata that stay open; each costs its client some bytes."""
    path = attack.chance.choice((INFER, STREAM))
    is_of_table = attack.chance.random() < 0.5
    for client in attack.calls(attack.between(1, 12)):
        if is_of_table:
            blocks = blocks_of_table(
                attack, path, attack.chance.randint(1000, 3900), attack.chance.randint(5, 14)
            )
        else:
            fields = attack.between(1, 100)
            names = [b"%03d" % n for n in range(fields)]
            value = b"v" * (attack.between(fields * 8, 30_000) // fields)
            more = b"".join(b"\0\3" + name + _string(value) for name in names)
            blocks = [attack.begin(n, path, more=more) for n in range(1, 201, 2)]
        send_blocks(client, blocks)


def headers_never_complete(attack: Attacker) -> None:
    """Blocks of headers that are cut into pieces of which the last does not come."""
    block = h2.header_block("/a.B/C") + b"\x00\x01a" + _string(bytes([97]) * 60_000)
    parts = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
    for client in attack.calls(attack.between(20, 300)):
        more = [h2.frame(h2.CONTINUATION, 0, 1, part) for part in parts[1:]]
        client.send_within(0.5, h2.frame(h2.HEADERS, 0, 1, parts[0]), *more)


def kept_headers(attack: Attacker) -> None:
    """Blocks of headers that a connection keeps the meaning of, on many connections."""
    for client in attack.calls(attack.between(20, 200)):
        blocks = []
        for number in range(1, 81, 2):
            fields = b"".join(
                b"\x00\x02%02d" % n + b"\x01" + b"%d" % (number % 10) for n in range(60)
            )
            blocks.append(attack.begin(number, f"/a.B/{number}", more=fields))
        client.send_within(0.5, *blocks)


def send_floods(attack: Attacker, name_of: Callable[[int], str], count: int) -> None:
    """Send floods as fast as the server takes them, and again when it has had enough."""
    clients: list[Any] = [None] * count
    sources: list[Any] = [None] * count
    while not attack.is_over:
        for at, client in enumerate(clients):
            if client is None:
                clients[at] = attack.call()
                seed = attack.chance.randrange(1 << 30)
                sources[at] = floods.chunks(name_of(at), seed, 1 << 30)
            elif not client.send_within(0.2, next(sources[at])):
                client.close()
                clients[at] = None
                time.sleep(0.01)  # or all of it would be connecting


def _some_floods(attack: Attacker, names: Sequence[str]) -> None:
    chosen = [attack.chance.choice(names) for _ in range(attack.chance.randint(1, 3))]
    send_floods(attack, lambda _: attack.chance.choice(chosen), attack.chance.randint(1, 6))


#: Of headers, and of windows, data and calls.
DEAR = ("fields", "few fields", "table sizes", "large entries", "table churn", "huffman")
CHEAP = ("windows", "bytes of data", "messages", "unknown calls")


def empty_requests(attack: Attacker) -> None:
    """Requests that are wrong, or next to nothing, thousands on a stream."""
    wrong = attack.chance.choice((b"", b"\x0a\x01x", b"\xff\xff", sized(1)[:-1]))
    many = (struct.pack(">BI", 0, len(wrong)) + wrong) * (12_000 // (5 + len(wrong)))
    clients = [*attack.calls(attack.between(1, 8))]
    for client in clients:
        with suppress(OSError):
            client.send(attack.begin(1, STREAM))
    while not attack.is_over:
        for client in clients:
            client.send_within(0.05, h2.frame(h2.DATA, 0, 1, many))
            client.read_some(1 << 16)


_PRIORITY, _PUSH, _UNKNOWN = 2, 5, 0x77
_FRAMES = (
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
    "even": lambda: (4, h2.headers_frame(1, STREAM)),
    "open": lambda: (1, h2.headers_frame(1, STREAM)),
    "half closed": lambda: (
        1,
        h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 1, h2.header_block(STREAM)),
    ),
    "reset": lambda: (1, h2.headers_frame(1, STREAM) + h2.reset_frame(1)),
    "amid headers": lambda: (1, h2.frame(h2.HEADERS, 0, 1, h2.header_block(STREAM))),
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
        kind, rate = attack.chance.choice(_FRAMES), attack.chance.choice(RATES)
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


ATTACKS: dict[str, Callable[[Attacker], None]] = {
    "gRPC streams, not read": unread_streams,
    "gRPC answers, not read": unread_unary,
    "gRPC answers, read slowly": slow_streams,
    "compressed messages": bombs,
    "compressed messages without token": partial(bombs, has_token=False),
    "messages that never end": endless_messages,
    "open streams with metadata": open_streams,
    "headers that never end": headers_never_complete,
    "headers that are kept": kept_headers,
    # headers that cost much to read
    "floods of headers": partial(_some_floods, names=(*DEAR, "pieces", "unknown calls")),
    # windows of one byte, data of one byte, empty messages
    "floods of bytes and windows": partial(_some_floods, names=CHEAP),
    "requests that are nothing": empty_requests,
    "frames by type, state and rate": frames_by_state,
}
