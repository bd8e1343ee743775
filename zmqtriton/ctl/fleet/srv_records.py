"""SRV records of DNS: the question, the answer, and the way to a name server and back.

The system's resolver knows addresses only, and a library for this one question would be a
dependency of everybody's. Follows RFC 1035 and RFC 2782.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from zmqtriton_floor.errors import InvalidArgument, NotFound

_SRV, _IN = 33, 1
_WANTS_RECURSION, _IS_TRUNCATED = 0x0100, 0x0200
_NO_SUCH_NAME = 3
_POINTER = 0xC0
_MOST_JUMPS = 32
_PORT = 53
_ANSWER_WITHIN_S = 3.0
_SETTINGS = Path("/etc/resolv.conf")


class SrvRecord(NamedTuple):
    priority: int
    weight: int
    port: int
    target: str


def encode_question(number: int, name: str) -> bytes:
    """Return the question for the SRV records of a name. Raises InvalidArgument."""
    labels = name.rstrip(".").encode("ascii", "replace").split(b".")
    if any(not 0 < len(label) < 64 or b"?" in label for label in labels):
        raise InvalidArgument(f"'{name}' is no name")
    encoded = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    head = struct.pack("!6H", number, _WANTS_RECURSION, 1, 0, 0, 0)
    return head + encoded + struct.pack("!2H", _SRV, _IN)


def is_truncated(message: bytes) -> bool:
    return bool(struct.unpack_from("!H", message, 2)[0] & _IS_TRUNCATED)


def decode_answer(number: int, name: str, message: bytes) -> list[SrvRecord]:
    """Return the records, the preferred ones first.

    Raises NotFound if the name is not known, and ValueError for what is no answer to the question.
    """
    try:
        return sorted(_records(number, name, message))
    except (struct.error, IndexError) as error:
        raise ValueError(f"a malformed answer: {error}") from None


def _records(number: int, name: str, message: bytes) -> Iterator[SrvRecord]:
    own_number, flags, questions, answers = struct.unpack_from("!4H", message)
    if own_number != number:
        raise ValueError("the answer to another question")
    if flags & 0xF == _NO_SUCH_NAME:
        raise NotFound(f"DNS does not know '{name}'")
    if flags & 0xF:
        raise ValueError(f"the name server refuses, code {flags & 0xF}")
    place = 12
    for _ in range(questions):
        place = _read_name(message, place)[1] + 4
    for _ in range(answers):
        place = _read_name(message, place)[1]
        kind, _, _, size = struct.unpack_from("!2HIH", message, place)
        place += 10
        if kind == _SRV:
            priority, weight, port = struct.unpack_from("!3H", message, place)
            yield SrvRecord(priority, weight, port, _read_name(message, place + 6)[0])
        place += size


def _read_name(message: bytes, place: int) -> tuple[str, int]:
    """Return a name, and the place behind it; its end may stand elsewhere in the message."""
    labels, behind = [], 0
    for _ in range(_MOST_JUMPS * 8):
        size = message[place]
        if size & _POINTER == _POINTER:
            behind = behind or place + 2
            place = struct.unpack_from("!H", message, place)[0] & 0x3FFF
        elif size:
            labels.append(message[place + 1 : place + 1 + size].decode("ascii", "replace"))
            place += 1 + size
        else:
            return ".".join(labels), behind or place + 1
    raise ValueError("a name without an end")


def look_up(name: str, name_servers: Sequence[tuple[str, int]] = ()) -> list[SrvRecord]:
    """Ask the name servers, by default the system's, one after the other.

    Raises NotFound, and InvalidArgument if none has an answer.
    """
    problem = "there is no name server"
    for host, port in name_servers or _system_name_servers():
        number = int.from_bytes(os.urandom(2), "big")
        question = encode_question(number, name)
        try:
            message = _ask(question, (host, port))
            return decode_answer(number, name, message)
        except (OSError, ValueError, struct.error) as error:
            problem = f"{host}: {error}"
    raise InvalidArgument(f"no answer about '{name}': {problem}")


def _ask(question: bytes, server: tuple[str, int]) -> bytes:
    family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as end:
        end.settimeout(_ANSWER_WITHIN_S)
        end.connect(server)
        end.send(question)
        message = end.recv(65535)
    if len(message) < 12 or not is_truncated(message):
        return message
    with socket.create_connection(server, _ANSWER_WITHIN_S) as end, end.makefile("rwb") as stream:
        stream.write(struct.pack("!H", len(question)) + question)
        stream.flush()
        (size,) = struct.unpack("!H", stream.read(2))
        return stream.read(size)


def _system_name_servers() -> list[tuple[str, int]]:
    lines = _SETTINGS.read_text("utf-8", "replace").splitlines() if _SETTINGS.exists() else []
    words = [line.split() for line in lines]
    return [(found[1], _PORT) for found in words if found[:1] == ["nameserver"] and found[1:]]
