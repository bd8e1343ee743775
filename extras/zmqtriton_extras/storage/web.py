"""Responses of hubs and registries over HTTP, by the standard library. Blocks: for threads.

Credentials are sent only to their own server, and never after a redirect.
"""

from __future__ import annotations

import http.client
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from zmqtriton.sdk.wire import InternalError

#: Seconds without a byte from the server after which a request fails; a body may take longer.
_WAIT_S = 30.0
_RETRIES = 3
_FIRST_PAUSE_S = 0.5
#: Status codes that can be temporary: the request is repeated.
_PASSING = (408, 429, 500, 502, 503, 504)
_AGENT = "zmqtriton"

Answer = http.client.HTTPResponse


class Refused(InternalError):
    """Raised for a refusal that another try would get again."""

    def __init__(self, text: str, status: int, headers: Any) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class Unreachable(InternalError):
    """Raised if there is no response, or none that answers the question."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, request: urllib.request.Request, *answer: Any
    ) -> urllib.request.Request | None:
        """Follow a redirect only to a server that is as safe as the one before."""
        _, code, _, headers, url = answer
        schemes = urlsplit(request.full_url).scheme, urlsplit(url).scheme
        if schemes[1] not in ("http", "https") or schemes == ("https", "http"):
            raise Refused(
                f"it sends to {url.partition('?')[0]}, which is less safe: use HTTPS", code, headers
            )
        if _is_link_local(urlsplit(url).hostname) and not _is_link_local(
            urlsplit(request.full_url).hostname
        ):
            text = f"it sends to {url.partition('?')[0]}, which only this machine can reach"
            raise Refused(text, code, headers)
        return super().redirect_request(request, *answer)


def _is_link_local(host: str | None) -> bool:
    """Return whether a host is on the machine's link, as clouds' servers of credentials are."""
    try:
        rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # a proxy may know it
        return False
    addresses = [ip_address(str(row[4][0]).partition("%")[0]) for row in rows]
    return any(
        (getattr(address, "ipv4_mapped", None) or address).is_link_local for address in addresses
    )


_opener = urllib.request.build_opener(_Redirects)


def ask(
    url: str,
    headers: Mapping[str, str],
    *,
    authorization: str = "",
    method: str = "GET",
) -> Answer:
    """Return the response; the caller reads and closes its body.

    Tries a few times. Raises Refused or Unreachable; the caller adds its question to the text.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise Refused(f"{url} must begin with http:// or https://", 0, {})
    request = urllib.request.Request(url, headers={"User-Agent": _AGENT, **headers}, method=method)
    if authorization:
        request.add_unredirected_header("Authorization", authorization)
    pause_s = _FIRST_PAUSE_S
    for attempt in range(_RETRIES + 1):
        try:
            answer: Answer = _opener.open(request, timeout=_WAIT_S)
            return answer
        except urllib.error.HTTPError as error:
            text = f"{error.code} {error.reason}"
            said = error.headers
            error.close()
            if error.code not in _PASSING:
                raise Refused(text, error.code, said) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            text = str(reason) or type(error).__name__
        if attempt < _RETRIES:
            time.sleep(pause_s)
            pause_s *= 2
    raise Unreachable(text)


def read_all(answer: Answer, limit: int) -> bytes:
    """Return a body up to the limit. Raises Unreachable if it is larger or incomplete."""
    try:
        with answer:
            body = answer.read(limit + 1)
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(str(error) or type(error).__name__) from None
    if len(body) > limit:
        raise InternalError(f"a response can have at most {limit} bytes")
    return body


#: Opens the content from this byte on; returns the stream and where it begins.
OpenContent = Callable[[int], tuple[Answer, int]]


def content_from(start: int, ask_with: Callable[[Mapping[str, str]], Answer]) -> tuple[Answer, int]:
    """Request a content from byte `start` on; return the response and where it begins."""
    answer = ask_with({"Range": f"bytes={start}-"} if start else {})
    return answer, start if answer.status == http.client.PARTIAL_CONTENT else 0
