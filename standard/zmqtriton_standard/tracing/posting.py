"""Posts a message to another server over HTTP and returns the answer.

Blocks, so it runs in a thread of its own. Uses the environment's proxies. Follows no redirection,
because the headers may hold keys.
"""

from __future__ import annotations

import http.client
import ssl
import string
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from zmqtriton.sdk.wire import __version__

if TYPE_CHECKING:
    from zmqtriton.sdk.process import Destination

#: Statuses after which the same message may be accepted later.
_RETRYABLE_STATUSES = frozenset({429, 502, 503, 504})
_MAX_ANSWER = 64 << 10


class PostError(Exception):
    """Raised if a message was not accepted."""

    def __init__(self, text: str, *, is_retryable: bool, retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        #: The same message may be accepted later, after the pause that the server asks for.
        self.is_retryable = is_retryable
        self.retry_after_s = retry_after_s


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class Poster:
    def __init__(self, url: str, headers: Mapping[str, str], tls: ssl.SSLContext | None) -> None:
        self._url = _in_ascii(url)
        self._headers = dict(headers)
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=tls), _NoRedirection
        )

    def __call__(
        self, data: bytes, within_s: float, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Post a message, with further headers, and return the answer. Raises PostError."""
        request = urllib.request.Request(self._url, data, {**self._headers, **(headers or {})})
        try:
            with self._opener.open(request, timeout=within_s) as answer:
                content: bytes = answer.read(_MAX_ANSWER)
                return content
        except urllib.error.HTTPError as error:
            with error:
                text = f"it answered {error.code}"
                after = error.headers.get("Retry-After", "")
            raise PostError(
                text,
                is_retryable=error.code in _RETRYABLE_STATUSES,
                retry_after_s=float(after) if after.isascii() and after.isdecimal() else 0.0,
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise PostError(_reason(error), is_retryable=True) from None
        except UnicodeError:
            raise PostError(
                "its host name is invalid: correct the URL", is_retryable=False
            ) from None


def poster_to(destination: Destination) -> Poster:
    """Return a function that posts messages of OpenTelemetry to a collector."""
    return Poster(
        destination.url,
        {
            "Content-Type": "application/x-protobuf",
            "User-Agent": f"OTel-OTLP-Exporter-zmqtriton/{__version__}",
            **destination.headers,
        },
        destination.tls,
    )


def _in_ascii(url: str) -> str:
    """Return a URL whose path and query are in ASCII, as HTTP sends them."""
    parts = urlsplit(url)
    path, query = (quote(part, safe=string.punctuation) for part in (parts.path, parts.query))
    return parts._replace(path=path, query=query).geturl()


def _reason(error: BaseException | str) -> str:
    if isinstance(error, urllib.error.URLError):
        return _reason(error.reason)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
