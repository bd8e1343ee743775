"""The names of headers as the client wrote them; gunicorn's parser makes them lower case.

Used only where headers become parameters of models, which look for the names that their clients
use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NAME = re.compile(rb"\r\n([^:\r\n]+):")
#: The states of gunicorn's parser while it has not read all headers.
_HEADERS = ("request_line", "headers")
_END = b"\r\n\r\n"


class Spelling:
    """The headers of one connection's newest request."""

    def __init__(self) -> None:
        self.names: Mapping[bytes, bytes] = {}
        #: What has arrived since the last headers were complete, as far as it may matter.
        self._fed = bytearray()

    def feed(self, parser: Any, data: bytes) -> None:
        """Take what the parser is about to read."""
        if getattr(parser, "_state", "") not in _HEADERS:
            # a body, or a parser in C, of which nobody knows where it is
            del self._fed[:]
        self._fed += data

    def end(self, parser: Any) -> None:
        """Return the names: the parser has read the headers of a request."""
        if not hasattr(parser, "_state"):
            return
        head = self._fed[: len(self._fed) - len(parser._buffer)]
        start = head.rfind(_END, 0, len(head) - len(_END)) + 1
        self.names = {name.lower(): bytes(name) for name in _NAME.findall(head, start)}
        del self._fed[: len(head)]
