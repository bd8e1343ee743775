"""The HTTP port of a server, as our programs use it."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from zmqtriton.sdk.process import Client, NoServerError
from zmqtriton.sdk.wire import InvalidArgument, NotFound, ZmqTritonError, errors

#: Loopback address to connect to, by the address of a server that listens on all.
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}


#: The beginning of a line of an event.
_DATA = b"data:"
_USUAL_PORTS = {"http": 80, "https": 443}
_SHOWN_BYTES = 60
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: Allowed characters of a header's value. Programs encode others in different ways, or not at all.
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")


class RefusedRequest(ZmqTritonError):
    """Raised for a response with an error; the text is the server's."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Answer(NamedTuple):
    """Headers in lower case, and the body."""

    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the document in the body. Raises NoServerError without one."""
        try:
            return json.loads(self.body)
        except ValueError:
            start = self.body[:_SHOWN_BYTES].decode("utf-8", "replace")
            raise NoServerError(
                f"this is no response of a model server: '{start}'; check the URL"
            ) from None


class HttpService:
    """An HTTP port, and headers for each request. Raises InvalidArgument for an invalid URL."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        self.url = _check_url(url)
        self._headers = headers
        self._timeout_s = timeout_s
        # A proxy of the environment is not meant for this machine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def request(
        self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a GET request, or a POST request with a body.

        Raises the server's refusal, DeadlineExceeded, and NoServerError if no server answers.
        """
        with self._errors(), self._open(path, body, headers or {}) as answer:
            return Answer(
                {name.lower(): text for name, text in answer.headers.items()}, answer.read()
            )

    def stream(self, path: str, body: bytes, headers: Mapping[str, str]) -> Iterator[Any]:
        """Yield the documents of a stream of events. Raises as `request` does."""
        with self._errors(), self._open(path, body, headers) as answer:
            yield from (json.loads(line[len(_DATA) :]) for line in answer if line.startswith(_DATA))

    @contextmanager
    def _open(
        self, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        request = urllib.request.Request(f"{self.url}{path}", body, {**self._headers, **headers})
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error.code, error.read()) from None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (TimeoutError, urllib.error.URLError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise errors.DeadlineExceeded(
                    f"no response within {self._timeout_s:g} s; see `zmqtriton-ctl explain`"
                ) from None
            raise NoServerError(f"no server answers at {self.url}, does it run? {reason}") from None
        except http.client.IncompleteRead:
            raise NoServerError(
                f"{self.url} ended the connection amid its response; send it again"
            ) from None
        except OSError as error:
            raise NoServerError(
                f"{self.url} ended the connection, send the request again: {error}"
            ) from None
        except http.client.HTTPException:
            hint = "if it has TLS, name it by --url https://HOST:PORT"
            raise NoServerError(f"{self.url} does not speak HTTP; {hint}") from None

    def raw_request(self, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        """Return the bytes of a POST, for callers who send it to `address` themselves."""
        parts = urlsplit(self.url)
        named = {"Host": parts.netloc, **self._headers, **headers, "Content-Length": str(len(body))}
        lines = [
            f"POST {parts.path}{path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in named.items()),
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    @property
    def address(self) -> str:
        """The host and the port, also the port that the URL leaves out."""
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{host}:{parts.port or _USUAL_PORTS[parts.scheme]}"


def _refusal(status: int, body: bytes) -> ZmqTritonError:
    try:
        # a stream that has not begun is refused by an event
        text = str(json.loads(body.removeprefix(_DATA))["error"])
    except (ValueError, KeyError, TypeError):
        text = body.decode("utf-8", "replace").strip()
    return RefusedRequest(f"{text.rstrip()} (HTTP {status})".lstrip(), status)


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in _USUAL_PORTS and parts.hostname and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise InvalidArgument(f"--url '{url}' must be like http://127.0.0.1:8000")
    return url.rstrip("/")


def find_url(client: Client) -> str:
    """Return the URL of a server's HTTP port. Raises NotFound if it has none."""
    return f"http://{find_address(client, 'http')}"


def find_address(client: Client, service: str) -> str:
    """Return `host:port` of the server's `http` or `grpc` as this machine reaches it.

    Raises NotFound if the server has no such port.
    """
    address = client.identity.addresses.get(service)
    if not address:
        name = {"http": "HTTP", "grpc": "gRPC"}[service]
        raise NotFound(
            f"this server has no {name} port (--allow-{service}=false): start it with that port"
        )
    host, _, port = address.rpartition(":")
    return f"{_LOOPBACK.get(host, host)}:{port}"


def parse_headers(texts: tuple[str, ...]) -> dict[str, str]:
    """Parse `NAME: VALUE`. Raises InvalidArgument."""
    headers = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not _HEADER_NAME.fullmatch(name.strip()):
            raise InvalidArgument(f"--header '{text}' must be 'NAME: VALUE'")
        if not _HEADER_VALUE.fullmatch(value):
            raise InvalidArgument(f"--header '{text}' must be printable ASCII")
        headers[name.strip()] = value.strip()
    return headers
