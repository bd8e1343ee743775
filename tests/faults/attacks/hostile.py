"""Hostile documents, the requests that carry them, and the clients that are not to wait.

The vocabulary of `tests.faults.attacks.documents`, and of `tests/hostile.py` of each extra: the
`HOUSE` there is the extra's doors.
"""

from __future__ import annotations

import functools
import http.client
import json
import pickle
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.faults.attacks.watching import MIB
from tests.faults.requests import SERVICE
from tests.support import raw_http2 as h2
from tests.support.server import ROOT, Server

#: Models: the attackers', and the one that the others ask.
VICTIM, OTHER = "victim", "identity_fp32"
_ATTACKER, _BYSTANDER = "127.0.0.3", "127.0.0.2"
_PAUSE_S, PATIENCE_S = 0.02, 120.0
JSON = {"content-type": "application/json"}


class Answer(NamedTuple):
    """The status over HTTP, or the code over gRPC, and the beginning of the text."""

    status: int
    text: str = ""


class Attack(NamedTuple):
    door: str
    document: str
    bytes: int
    send: Callable[[], Answer]

    @property
    def name(self) -> str:
        return f"{self.door}, {self.document}, {self.bytes / MIB:.1f} MiB"


class House(NamedTuple):
    """The doors of an add-on, or of the server without any."""

    attacks: Callable[[Server, random.Random], Iterator[Attack]]
    #: Options and variables of the server, whose files are in a directory.
    options: Callable[[Path], Sequence[str]] = lambda _: ()
    environment: Mapping[str, str] = {}
    prepare: Callable[[Server], object] = lambda _: None
    #: Clients that are not to wait: functions that ask once, which other processes call.
    bystanders: Callable[[Server], Mapping[str, Callable[[], bool]]] = lambda _: {}


# -------------------------------------------------------------------- documents


def many(element: bytes, mib: float) -> bytes:
    """Return an array of equal elements, of so many MiB of text."""
    count = int(mib * MIB) // (len(element) + 1)
    return b"[" + (element + b",") * (count - 1) + element + b"]"


def keys(mib: float) -> bytes:
    return b"{" + b",".join(b'"%x":1' % number for number in range(int(mib * MIB) // 10)) + b"}"


def chain(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def string(letters: bytes, mib: float) -> bytes:
    return b'"' + letters * (int(mib * MIB) // len(letters)) + b'"'


def member(name: str, text: bytes) -> bytes:
    return b'{"%b":%b}' % (name.encode(), text)


_ELEMENTS = (b"[]", b"{}", b"1", b"0.1234", b'""', b'"ab"', b'{"a":1}', b"[1,2]", b"null", b"NaN")
#: Kinds of documents of so many MiB.
KINDS: Mapping[str, Callable[[float], bytes]] = {
    **{element.decode(): functools.partial(many, element) for element in _ELEMENTS},
    "keys": keys,
    "a text": functools.partial(string, b"a, "),
    "escapes": functools.partial(string, b"\\u0041"),
    "wide text": functools.partial(string, "a😀".encode()),
    "digits": lambda mib: b"1" * int(mib * MIB),
    "spaces": lambda mib: b" " * int(mib * MIB) + b"[]",
    "chain of 99": lambda mib: many(chain(98), mib),
    "endless chain": lambda mib: b'{"a":' * int(mib * MIB / 5),
    "cut": lambda mib: many(b"[]", mib)[:-1],
}


def drawn(chance: random.Random, most_mib: float = 60.0) -> tuple[str, bytes]:
    """Return the name of a kind, and a document of it; each order of magnitude is as likely."""
    name = chance.choice(sorted(KINDS))
    return name, KINDS[name](0.05 * (most_mib / 0.05) ** chance.random())


# ------------------------------------------------------------------------- HTTP


def send(
    port: int, path: str, body: bytes, headers: Mapping[str, str] = JSON, address: str = _ATTACKER
) -> Answer:
    """Return the answer to a POST from an address; status 0 if the connection has ended."""
    connection = http.client.HTTPConnection("127.0.0.1", port, PATIENCE_S, (address, 0))
    try:
        connection.request("POST", path, body, dict(headers))
        answer = connection.getresponse()
        return Answer(answer.status, answer.read(200).decode("utf-8", "replace"))
    except (OSError, http.client.HTTPException):
        return Answer(0)
    finally:
        connection.close()


def post(
    server: Server,
    door: str,
    path: str,
    document: tuple[str, bytes],
    headers: Mapping[str, str] = JSON,
) -> Attack:
    name, body = document
    return Attack(door, name, len(body), lambda: send(server.http_port, path, body, headers))


# ------------------------------------------------------------------- bystanders


def asks_http(port: int, path: str, document: object) -> bool:
    return 200 == send(port, path, json.dumps(document).encode(), JSON, _BYSTANDER).status


def asks_grpc(port: int) -> bool:
    return b"grpc-status" in h2.ask(port, SERVICE + "ServerLive", b"grpc-status", _BYSTANDER)


def ask_again(written: str) -> None:
    """Ask for ever; print when each question began, its wait, and whether the answer was right."""
    ask = pickle.loads(bytes.fromhex(written))
    while True:
        time.sleep(_PAUSE_S)
        begun = time.monotonic()
        was_right = False
        with suppress(Exception):  # each is one wrong answer
            was_right = ask()
        print(begun, time.monotonic() - begun, int(was_right), flush=True)


class Waits:
    """A process that asks again and again, and writes how long it waits."""

    def __init__(self, ask: Callable[[], bool], path: Path) -> None:
        self.name, self._path = path.stem, path
        code = f"import {__name__} as it; it.ask_again({pickle.dumps(ask).hex()!r})"
        with path.open("w") as file:
            command = [sys.executable, "-c", code]
            self._process = subprocess.Popen(command, stdout=file, cwd=ROOT)

    def longest_s(self, begun: float) -> float:
        """Return the longest wait that has ended since then."""
        return max((wait for at, wait, _ in self._rows() if at + wait >= begun), default=0.0)

    @property
    def wrong(self) -> int:
        return sum(not was_right for _, _, was_right in self._rows())

    def _rows(self) -> Iterator[tuple[float, float, int]]:
        for line in self._path.read_text().rpartition("\n")[0].splitlines():
            begun, wait, was_right = line.split()
            yield float(begun), float(wait), int(was_right)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
