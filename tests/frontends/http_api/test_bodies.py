"""Bodies that come in pieces, how much of them is taken, and further headers of errors."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest
from falcon.testing import create_scope

from zmqtriton_floor.errors import InvalidArgument, Unavailable, ZmqTritonError
from zmqtriton_frontends.http_api.asgi import request as asgi_request
from zmqtriton_frontends.http_api.asgi.problems import headers_of
from zmqtriton_frontends.http_api.asgi.request import HttpRequest


@pytest.mark.parametrize(
    ("sizes", "refusal"),
    [
        ([3, 3], ""),
        ([3, 4], "size of 7 bytes"),
        ([7], "size of 7 bytes"),
        ([2, 1, 3], ""),
        ([1, 1, 1, 1], "at most 3 chunks"),
        # of one that goes on for ever no more is read than a client needs to see its error
        ([6, 4, 1], "size of 11 bytes"),
        ([6, 4, 1, 1], "size of 11 bytes"),
    ],
)
def test_a_body_in_pieces_may_have_as_many_bytes_and_pieces_as_the_limits_say(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], refusal: str
) -> None:
    monkeypatch.setattr(asgi_request, "MAX_PIECES", 3)
    monkeypatch.setattr(asgi_request, "DROP_BYTES", 4)
    first, *events = [
        {"type": "http.request", "body": bytes(size), "more_body": left > 1}
        for left, size in zip(range(len(sizes), 0, -1), sizes, strict=True)
    ]

    async def receive() -> Any:
        return events.pop(0)

    request = HttpRequest(create_scope(), receive, first_event=first)
    with pytest.raises(InvalidArgument, match=refusal) if refusal else nullcontext():
        assert bytes(6) == asyncio.run(request.read_body(6))


@pytest.mark.parametrize(
    ("error", "retry_after_ms", "headers"),
    [
        (Unavailable("full"), 0, [("Retry-After", "1")]),
        (Unavailable("full"), 200, [("Retry-After", "1")]),
        (Unavailable("full"), 6001, [("Retry-After", "7")]),
        (Unavailable("full"), 10_000_000, [("Retry-After", "300")]),
        (InvalidArgument("wrong"), 6000, []),
    ],
)
def test_clients_retry_when_there_is_room(
    error: ZmqTritonError, retry_after_ms: int, headers: list[tuple[str, str]]
) -> None:
    error.retry_after_ms = retry_after_ms

    assert headers == [*headers_of(error)]
