"""Posts a message to a server elsewhere over HTTP and returns the answer.

Blocks, so it runs in a thread of its own. Proxies are those of the environment; the headers, which
may hold keys, are sent nowhere else: no redirection is followed.
"""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

#: Statuses after which the same message may be accepted later.
_RETRYABLE_STATUSES = frozenset({429, 502, 503, 504})
_MOST_ANSWER = 64 << 10


class PostError(Exception):
    """Raised if a message was not accepted."""

    def __init__(self, text: str, *, may_pass: bool) -> None:
        super().__init__(text)
        #: It may be accepted later.
        self.is_retryable = may_pass


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class Poster:
    def __init__(self, url: str, headers: Mapping[str, str], tls: ssl.SSLContext | None) -> None:
        self._url = url
        self._headers = dict(headers)
        secured = urllib.request.HTTPSHandler(context=tls)
        self._opener = urllib.request.build_opener(secured, _NoRedirection)

    def __call__(
        self, data: bytes, within_s: float, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Post a message, with further headers, and return the answer. Raises PostError."""
        request = urllib.request.Request(self._url, data, {**self._headers, **(headers or {})})
        try:
            with self._opener.open(request, timeout=within_s) as answer:
                found: bytes = answer.read(_MOST_ANSWER)
                return found
        except urllib.error.HTTPError as error:
            with error:
                text = f"it answered {error.code}"
            raise PostError(text, may_pass=error.code in _RETRYABLE_STATUSES) from None
        except (OSError, http.client.HTTPException) as error:
            raise PostError(_reason(error), may_pass=True) from None


def _reason(error: BaseException | str) -> str:
    if isinstance(error, urllib.error.URLError):
        return _reason(error.reason)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
