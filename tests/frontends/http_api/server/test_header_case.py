from __future__ import annotations

import pytest
from gunicorn.asgi.parser import PythonProtocol

from zmqtriton_frontends.http_api.server.header_case import Spelling

FIRST = b"POST / HTTP/1.1\r\nHost: a\r\nX-One: Body:\r\nContent-Length: 9\r\n\r\nX-one: 7\n"
SECOND = b"GET / HTTP/1.1\r\nHOST: a\r\nx-ONE: 2\r\n\r\n"


class Reader:
    """Feeds a parser as gunicorn's protocol does, and keeps the names of each request."""

    def __init__(self) -> None:
        self.spelling = Spelling()
        self.names: list[dict[bytes, bytes]] = []
        self.parser = PythonProtocol(on_headers_complete=self._complete)

    def _complete(self) -> None:
        self.spelling.end(self.parser)
        self.names.append(dict(self.spelling.names))

    def feed(self, data: bytes) -> None:
        self.spelling.feed(self.parser, data)
        self.parser.feed(data)
        if self.parser.is_complete:
            rest = self.parser.remaining()
            self.parser.reset()
            if rest:
                self.feed(rest)


@pytest.mark.parametrize("size", [1, 7, 50, 1000])
@pytest.mark.row("C32")
def test_names_are_those_of_the_request_however_it_arrives(size: int) -> None:
    reader = Reader()

    stream = FIRST + SECOND
    for start in range(0, len(stream), size):
        reader.feed(stream[start : start + size])

    first, second = reader.names
    assert (b"X-One", b"Host") == (first[b"x-one"], first[b"host"])
    assert (b"x-ONE", b"HOST") == (second[b"x-one"], second[b"host"])


def test_a_parser_that_hides_what_it_holds_is_left_alone() -> None:
    spelling = Spelling()
    other = object()

    spelling.feed(other, FIRST)
    spelling.end(other)

    assert {} == spelling.names
