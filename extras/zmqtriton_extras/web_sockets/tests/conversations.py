"""Conversations of clients on a WebSocket, right and wrong, each made from a seed."""

from __future__ import annotations

from collections import Counter
from random import Random

from zmqtriton_extras.web_sockets.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    frame,
)

#: Sizes on both sides of each step of a length, and small ones.
_SIZES = (0, 1, 2, 7, 124, 125, 126, 127, 128, 65_535, 65_536)
#: Text whose characters have one to four bytes, for divisions amid a character.
_LETTERS = "aü€𝄞"
#: Bytes that are no UTF-8: alone, cut off, too long, a half of a pair, beyond Unicode.
_NO_TEXTS = (b"\xff", b"\xe2\x82", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80")
#: Codes of closing frames: of the RFC, reserved, of applications, and of nobody. Not 1014, which
#: was registered later, and which wsproto does not know.
_CODES = (*range(999, 1014), 1015, 1016, 1100, 2000, 2999, 3000, 4000, 4999, 5000, 65_535)
#: What is wrong in one of three conversations, behind right messages.
FAULTS = (
    "reserved bit",
    "no mask",
    "opcode",
    "continuation",
    "amid a message",
    "control in parts",
    "control too long",
    "no text",
    "longer length",
    "closing of a byte",
    "closing no text",
)


def client_frame(
    opcode: int, data: bytes, *, is_last: bool = True, mask: bytes = b"\1\2\3\4", bits: int = 0
) -> bytes:
    """Return a frame as a client sends it."""
    head = bytearray(frame(opcode, len(data)))
    head[0] = (head[0] & 0x0F) | (0x80 if is_last else 0) | bits
    head[1] |= 0x80
    return bytes(head) + mask + _masked(data, mask)


def make(random: Random, counts: Counter[str]) -> bytes:
    """Return what a client sends, and count what is in it."""
    sent = b"".join(_message(random, counts) for _ in range(random.randrange(5)))
    if random.random() < 0.4:
        fault = random.choice(FAULTS)
        counts[fault] += 1
        sent += _wrong(random, fault)
    if random.random() < 0.7:
        code = random.choice(_CODES)
        counts["closing"] += 1
        sent += client_frame(CLOSE, code.to_bytes(2, "big") + _text(random, 40))
    return sent + (_message(random, counts) if random.random() < 0.5 else b"")


def _message(random: Random, counts: Counter[str]) -> bytes:
    """Return a message in parts, or whole, with control frames between the parts."""
    opcode = random.choice((TEXT, BINARY))
    size = random.choice(_SIZES) if random.random() < 0.2 else random.randrange(60)
    data = _text(random, size) if opcode == TEXT else random.randbytes(size)
    counts["messages"] += 1
    sent, at = b"", 0
    for end in sorted(random.choices(range(len(data) + 1), k=random.randrange(6))):
        sent += _frame(random, opcode, data[at:end], is_last=False)
        opcode, at = CONTINUATION, end
        while random.random() < 0.3:
            counts["controls amid a message"] += 1
            sent += _frame(random, random.choice((PING, PONG)), random.randbytes(5))
    return sent + _frame(random, opcode, data[at:])


def _wrong(random: Random, fault: str) -> bytes:
    text, wrong = _text(random, 20), random.choice(_NO_TEXTS)
    begun = client_frame(BINARY, text, is_last=False)
    no_text = (
        _frame(random, TEXT, text + wrong[:1], is_last=False)
        + client_frame(PING, b"")
        + _frame(random, CONTINUATION, wrong[1:])
    )
    return {
        "reserved bit": client_frame(TEXT, text, bits=random.randrange(1, 8) << 4),
        "no mask": frame(TEXT, len(text)) + text,
        "opcode": client_frame(random.choice((3, 4, 5, 6, 7, 11, 12, 13, 14, 15)), text),
        "continuation": client_frame(CONTINUATION, text, is_last=random.random() < 0.5),
        "amid a message": begun + client_frame(random.choice((TEXT, BINARY)), text),
        "control in parts": client_frame(random.choice((CLOSE, PING, PONG)), b"", is_last=False),
        "control too long": client_frame(random.choice((PING, PONG, CLOSE)), bytes(126)),
        "longer length": b"\x82\xfe" + len(text).to_bytes(2, "big") + bytes(4) + text,
        "closing of a byte": client_frame(CLOSE, b"\3"),
        "closing no text": client_frame(CLOSE, b"\3\xe8" + wrong),
        "no text": no_text,
    }[fault]


def _frame(random: Random, opcode: int, data: bytes, *, is_last: bool = True) -> bytes:
    return client_frame(opcode, data, is_last=is_last, mask=random.randbytes(4))


def _text(random: Random, size: int) -> bytes:
    """Return text of at most this many bytes."""
    letters = "".join(random.choices(_LETTERS, k=size))
    return letters.encode()[:size].decode(errors="ignore").encode()


def _masked(data: bytes, mask: bytes) -> bytes:
    keys = (mask * (len(data) // 4 + 1))[: len(data)]
    number = int.from_bytes(data, "little") ^ int.from_bytes(keys, "little")
    return number.to_bytes(len(data), "little")
