"""How a client wrote the names of its headers, which gunicorn's parser makes lower case.

Fed by connections.py, and only where headers become parameters of models: those look for the names
that their clients use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NAME = re.compile(rb"\r\n([^:\r\n]+):")
#: Where gunicorn's parser is while it has not read all headers.
_HEADERS = ("request_line", "headers")
_END = b"\r\n\r\n"


class Spelling:
    """The headers of one connection's newest request."""

    def __init__(self) -> None:
        self.names: Mapping[bytes, bytes] = {}
        #: What has arrived since the last headers were complete, as far as it may matter.
        self._fed = bytearray()

    def feed(self, parser: Any, data: bytes) -> None:
        """What the parser is about to read."""
        if getattr(parser, "_state", "") not in _HEADERS:
            # A body, or a parser in C, of which nobody knows where it is.
            del self._fed[:]
        self._fed += data

    def end(self, parser: Any) -> None:
        """The parser has read the headers of a request."""
        if not hasattr(parser, "_state"):
            return
        head = self._fed[: len(self._fed) - len(parser._buffer)]
        start = head.rfind(_END, 0, len(head) - len(_END)) + 1
        self.names = {name.lower(): bytes(name) for name in _NAME.findall(head, start)}
        del self._fed[: len(head)]
