"""Bodies that routes read as JSON have limits, which the author of a route may set."""

from __future__ import annotations

import json

import pytest

from zmqtriton_extras.routes.backend.api import Request, RouteError


def request(body: bytes) -> Request:
    return Request({"method": "POST", "path": "/", "query": "", "headers": {}}, memoryview(body))


@pytest.mark.parametrize(
    ("body", "max_bytes", "what"),
    [
        (b"[" + b"[]," * 300_000 + b"[]]", 64 << 20, "262144 arrays and objects"),
        (b"[" + b"1," * 1_100_000 + b"1]", 64 << 20, "1048576 values"),
        (b"[" + b"1," * 70_000 + b"1]", 1 << 20, "65536 values"),
        (b'"' + b"a" * 200 + b'"', 100, "100 bytes"),
    ],
)
def test_a_body_beyond_a_limit_is_too_large(body: bytes, max_bytes: int, what: str) -> None:
    with pytest.raises(RouteError, match=f"the body is too large: .* {what}") as caught:
        request(body).json(max_bytes=max_bytes)

    assert 413 == caught.value.status


@pytest.mark.slow
def test_an_author_may_take_more() -> None:
    rows = [[1, 2]] * 300_000

    assert rows == request(json.dumps(rows).encode()).json(max_bytes=100 << 20)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 1000, b"9" * 5000])
def test_other_bodies_are_no_json(body: bytes) -> None:
    with pytest.raises(RouteError, match="the body must be JSON: ") as caught:
        request(body).json()

    assert 400 == caught.value.status
    assert len(caught.value.text) < 200
