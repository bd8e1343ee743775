"""Requests to a cloud's endpoints, passed on to the application under the names that it knows.

A platform passes on few headers, so the length of the JSON before binary tensors is a part of the
content type there.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import unquote

from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_frontends.access.refusals import AccessRefused, Headers
from zmqtriton_frontends.http_api import JSON_LENGTH_HEADER
from zmqtriton_frontends.http_api.asgi import problems
from zmqtriton_frontends.process import Application

Scope = dict[str, Any]
Event = dict[str, Any]

_CONTENT_TYPE = b"content-type"
_JSON_LENGTH = JSON_LENGTH_HEADER.lower().encode()
#: The platforms' own; an answer is never compressed for them.
_NOT_PASSED_ON = frozenset({_CONTENT_TYPE, _JSON_LENGTH, b"accept-encoding"})


class Target(NamedTuple):
    """The request that the application gets instead."""

    method: str
    #: As in a request.
    path: str
    #: Of requests with binary tensors; the length of the JSON follows it.
    binary_type: str


async def pass_on(
    application: Application, scope: Scope, receive: Any, send: Any, target: Target
) -> None:
    """Have the application answer the request as one for the target."""
    try:
        headers = _headers(scope["headers"], target.binary_type)
    except InvalidArgument as error:
        await answer(send, *problems.response_to(error))
        return
    changed = {"path": unquote(target.path), "raw_path": target.path.encode(), "headers": headers}
    await application({**scope, **changed, "method": target.method}, receive, send)


def header(scope: Scope, name: bytes) -> str | None:
    """Return the value of a header, given in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return None


async def refuse(send: Any, error: AccessRefused) -> None:
    """Answer without the application that the client may not ask this."""
    await answer(send, *problems.response_to(error), error.headers)


async def answer(send: Any, status: int, body: bytes = b"", headers: Headers = ()) -> None:
    """Answer without the application."""
    rows = [(b"content-type", b"application/json")] if body else []
    rows += [(name.lower().encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": rows})
    await send({"type": "http.response.body", "body": body})


def _headers(fields: list[tuple[bytes, bytes]], binary_type: str) -> list[tuple[bytes, bytes]]:
    passed = [row for row in fields if row[0] not in _NOT_PASSED_ON]
    for name, value in fields:
        if name == _CONTENT_TYPE:
            before, separator, length = value.decode("latin-1").partition(binary_type)
            if not separator:
                continue
            if before:
                raise InvalidArgument(
                    f"expect MIME type for binary data starts with '{binary_type}', got: "
                    + value.decode("latin-1")
                )
            passed.append((_JSON_LENGTH, length.strip().encode("latin-1")))
    return passed


def with_length_in_type(send: Any, binary_type: str) -> Any:
    """Return a `send` that tells the length of the JSON in the content type, too."""

    async def send_event(event: Event) -> None:
        if event["type"] == "http.response.start":
            event = {**event, "headers": _rows_with_length(event["headers"], binary_type)}
        await send(event)

    return send_event


def _rows_with_length(
    rows: list[tuple[bytes, bytes]], binary_type: str
) -> list[tuple[bytes, bytes]]:
    lengths = [value for name, value in rows if name.lower() == _JSON_LENGTH]
    if not lengths:
        return rows
    left = [row for row in rows if row[0].lower() not in (_JSON_LENGTH, _CONTENT_TYPE)]
    return [*left, (_CONTENT_TYPE, binary_type.encode() + lengths[0])]
