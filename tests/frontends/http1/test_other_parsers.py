"""Our parser beside others: llhttp, h11 and gunicorn's own.

Requests that are damaged at random, but the same ones each time: whatever we accept, each of them
either refuses or takes for the same request. Where they accept more, we are stricter.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import h11
import httptools
import pytest
from gunicorn.asgi.parser import ParseError, PythonProtocol

from zmqtriton_frontends import http1
from zmqtriton_frontends.http1 import Refused, RequestReader

pytestmark = pytest.mark.slow


class Message(NamedTuple):
    """A request as somebody has read it, and what is left of the data."""

    method: bytes
    target: bytes
    fields: list[tuple[bytes, bytes]]
    body: bytes
    rest: bytes


END = b"GET /end HTTP/1.1\r\nHost: x\r\n\r\n"
WHOLE = (
    b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nX: a b\r\n\r\nabcde",
    b"POST /a?b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;a=b\r\nabc\r\n0\r\nY: z\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x:1\r\nConnection: keep-alive\r\n\r\n",
)
PIECES = (
    b"",
    b"\r",
    b"\n",
    b"\r\n",
    b" ",
    b":",
    b"\0",
    b"\xff",
    b"0",
    b"\t",
    b",",
    b";",
    b"\x0b",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"\r\n\r\n",
    b"chunked",
    b"gzip",
)


def ours(data: bytes) -> Message | None:
    reader = RequestReader()
    reader.held += data
    try:
        body = reader.read()
    except Refused:
        return None
    head = reader.head
    if body is None or head is None or not reader.is_whole:
        return None
    rest = data[len(data) - len(reader.held) :]
    return Message(head.method.encode(), head.target, list(head.fields), body, rest)


class Collector:
    """The first message, as llhttp reads it."""

    def __init__(self) -> None:
        self.url = self.body = b""
        self.fields: list[tuple[bytes, bytes]] = []
        self.is_head, self.is_whole = True, False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.is_head:  # otherwise it is a trailer
            self.fields.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        self.is_head = False

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_whole = True


def by_llhttp(data: bytes) -> Message | None:
    collector = Collector()
    parser = httptools.HttpRequestParser(collector)
    try:
        for at in range(len(data)):  # it tells nobody where a message ends
            parser.feed_data(data[at : at + 1])
            if collector.is_whole:
                rest = data[at + 1 :]
                return Message(
                    parser.get_method(), collector.url, collector.fields, collector.body, rest
                )
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None
    return None


def by_h11(data: bytes) -> Message | None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    request: Any = None
    body = b""
    try:
        connection.receive_data(data)
        while True:
            event: Any = connection.next_event()
            if isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                rest = bytes(connection.trailing_data[0])
                return Message(request.method, request.target, list(request.headers), body, rest)
            else:
                return None
    except h11.RemoteProtocolError:
        return None


def by_gunicorn(data: bytes) -> Message | None:
    body: list[bytes] = []
    parser = PythonProtocol(on_body=body.append)
    try:
        parser.feed(data)
    except ParseError:
        return None
    if not parser.is_complete:
        return None
    head: Any = parser
    return Message(head.method, head.path, list(head.headers), b"".join(body), parser.remaining())


def damaged(count: int) -> list[bytes]:
    dice = random.Random(11)
    messages = list(WHOLE)
    for _ in range(count):
        data = bytearray(dice.choice(WHOLE))
        for _ in range(dice.randint(1, 3)):
            at = dice.randint(0, len(data))
            data[at : at + dice.randint(0, 3)] = dice.choice(PIECES)
        messages.append(bytes(data))
    return messages


@pytest.mark.parametrize("other", [by_llhttp, by_h11, by_gunicorn])
@pytest.mark.row("C34")
def test_what_is_accepted_means_the_same_to_others(
    other: Callable[[bytes], Message | None],
) -> None:
    seen: Counter[tuple[bool, bool]] = Counter()
    for data in damaged(20_000):
        own, foreign = ours(data + END), other(data + END)
        seen[own is not None, foreign is not None] += 1
        if own is not None and foreign is not None:
            assert own == foreign, data

    assert seen[True, True] > 1000
    assert seen[False, False] > 1000


def test_limits_are_checked_before_anything_is_made_of_a_head() -> None:
    fields = b"".join(b"X%d: y\r\n" % number for number in range(http1.MAX_FIELDS + 1))

    assert ours(b"GET / HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n") is None
