"""Downloads files from URLs of hosts that the operator permits.

Scheme, host and port of a URL, and of each redirect, must be permitted together. A download has one
deadline. It runs in one of a limited number of threads.
"""

from __future__ import annotations

import io
import time
import urllib.request
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from zmqtriton.sdk.frontend import Threads
from zmqtriton.sdk.wire import shown
from zmqtriton_extras.functions.backend.kinds import MismatchError, PlacedError

#: Maximum seconds for a download, and maximum bytes of a file.
WITHIN_S = 10.0
_MAX_BYTES = 64 << 20
_PIECE_BYTES = 64 << 10
#: Maximum number of concurrent downloads.
MAX_FETCHES = 16


class NotFetched(PlacedError):
    """Raised for a URL whose file must be downloaded before the request can be read."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class _Reader(io.RawIOBase):
    """Reads from a connection until a deadline, even if the server sends a few bytes at a time."""

    def __init__(self, connection: Any, left_s: Callable[[], float]) -> None:
        self._connection, self._left_s = connection, left_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(self._left_s())
        return int(self._connection.recv_into(buffer))


class _Response(HTTPResponse):
    def __init__(self, left_s: Callable[[], float], connection: Any, **how: Any) -> None:
        super().__init__(connection, **how)
        self._own = self.fp  # keeps the connection open
        self.fp = io.BufferedReader(_Reader(connection, left_s))


class _Fetch(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens the connections of one download, with its deadline."""

    def __init__(self, until_s: float) -> None:
        super().__init__()
        self._until_s = until_s

    def left_s(self) -> float:
        """Return the seconds until the deadline. Raises TimeoutError after it."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        return left_s

    def http_open(self, req: Any) -> Any:
        return self._open(HTTPConnection, req)

    def https_open(self, req: Any) -> Any:
        return self._open(HTTPSConnection, req)

    def _open(self, kind: Any, request: Any) -> Any:
        def connect(host: str, timeout: Any = None, **how: Any) -> Any:
            connection = kind(host, timeout=self.left_s(), **how)
            connection.response_class = lambda *own, **more: _Response(self.left_s, *own, **more)
            return connection

        return self.do_open(connect, request)


class Urls(urllib.request.HTTPRedirectHandler):
    def __init__(self, hosts: tuple[str, ...], max_bytes: int) -> None:
        """Set up with the permitted origins, or hosts for HTTPS, and the maximum size of a file."""
        self._origins = {each if "://" in each else f"https://{each}" for each in hosts}
        self._max_bytes = min(max_bytes, _MAX_BYTES)
        self._threads = Threads("files at URLs", MAX_FETCHES)

    def __bool__(self) -> bool:
        return bool(self._origins)

    async def fetch(self, url: str) -> bytes:
        """Return the content of a URL. Raises MismatchError; Unavailable if all threads work."""
        return await self._threads.run(self.read, url)

    def redirect_request(
        self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, to: str
    ) -> Any:
        """Follow a redirect to a permitted origin. Raises MismatchError for any other."""
        self._check(to)
        return super().redirect_request(req, fp, code, msg, headers, to)

    def _check(self, url: str) -> None:
        parts = urlsplit(url)
        if f"{parts.scheme}://{parts.netloc}".lower() not in self._origins:
            host = f"'{shown(parts.netloc)}'"
            raise MismatchError(f"the server reads no URLs of {host}, see --functions-url-host")

    def read(self, url: str) -> bytes:
        """Return the content of a URL; for a thread, since it blocks. Raises MismatchError."""
        fetch, data = _Fetch(time.monotonic() + WITHIN_S), bytearray()
        limits = f"{self._max_bytes} bytes or {WITHIN_S:g} s"
        try:
            self._check(url)
            with urllib.request.build_opener(self, fetch).open(url) as answer:
                while piece := answer.read1(_PIECE_BYTES):
                    data += piece
                    if len(data) > self._max_bytes:
                        raise MismatchError(f"the URL must not take more than {limits}")
        except (OSError, HTTPException, ValueError) as error:
            if "timed out" in str(error):
                raise MismatchError(f"the URL must not take more than {limits}") from None
            raise MismatchError(f"check the URL, it cannot be read: {shown(error)}") from None
        return bytes(data)
