"""Further headers of errors."""

from __future__ import annotations

import pytest

from zmqtriton_floor.errors import InvalidArgument, Unavailable, ZmqTritonError
from zmqtriton_frontends.http_api.asgi.problems import headers_of


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
