"""Files at URLs of hosts that the operator has named. Blocks: for threads only.

An origin (scheme, host and port) is compared as a whole, also behind each redirect.
"""

from __future__ import annotations

import time
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from zmqtriton_extras.functions.backend.kinds import MismatchError

#: Maximum time for a whole file, and its maximum size.
_WITHIN_S = 10.0
_MAX_BYTES = 64 << 20
_PIECE_BYTES = 64 << 10


class Urls(urllib.request.HTTPRedirectHandler):
    def __init__(self, hosts: tuple[str, ...], max_bytes: int) -> None:
        """Set up with origins, or hosts for https."""
        self._origins = {each if "://" in each else f"https://{each}" for each in hosts}
        self._max_bytes = min(max_bytes, _MAX_BYTES)
        self._opener = urllib.request.build_opener(self)

    def __bool__(self) -> bool:
        return bool(self._origins)

    def redirect_request(
        self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, to: str
    ) -> Any:
        """Follow to origins that are allowed. Raises MismatchError."""
        self._check(to)
        return super().redirect_request(req, fp, code, msg, headers, to)

    def _check(self, url: str) -> None:
        parts = urlsplit(url)
        if f"{parts.scheme}://{parts.netloc}".lower() not in self._origins:
            raise MismatchError(f"the server reads no URLs of '{parts.netloc}'")

    def read(self, url: str) -> bytes:
        """Return the file at a URL. Raises MismatchError."""
        until_s, data = time.monotonic() + _WITHIN_S, bytearray()
        try:
            self._check(url)
            with self._opener.open(url, timeout=_WITHIN_S) as answer:
                while piece := answer.read1(_PIECE_BYTES):
                    data += piece
                    if len(data) > self._max_bytes or time.monotonic() > until_s:
                        limits = f"{self._max_bytes} bytes or {_WITHIN_S:g} s"
                        raise MismatchError(f"the URL takes more than {limits}")
        except (OSError, HTTPException, ValueError) as error:
            raise MismatchError(f"the URL cannot be read: {error}") from None
        return bytes(data)
