from __future__ import annotations

import urllib.parse
from typing import Any

import hpack
import pytest

from zmqtriton_frontends.grpc_api.handlers import Rpc
from zmqtriton_frontends.grpc_api.transport.call_headers import (
    Opening,
    only_trailers,
    percent_encoded,
    read_opening,
)

pytestmark = pytest.mark.slow

RPC = Rpc("a.B", "C", "inference")
HEADERS = {
    b":method": b"POST",
    b":scheme": b"http",
    b":path": b"/a.B/C",
    b"te": b"trailers",
    b"content-type": b"application/grpc",
}


def read(**more: str) -> Opening | None:
    fields = HEADERS | {k.replace("_", "-").encode(): v.encode() for k, v in more.items()}
    return read_opening(tuple(fields.items()), {b"/a.B/C": RPC})


def refusal(**more: str) -> dict[bytes, bytes]:
    """Return what answers it."""
    opening = read(**more)
    assert opening is not None
    assert opening.rpc is None
    decoded: Any = hpack.Decoder().decode(opening.refusal, raw=True)
    return dict(decoded)


def test_a_request_is_read() -> None:
    opening = read(grpc_timeout="20S", grpc_encoding="gzip", grpc_accept_encoding="gzip, br", k="v")

    assert opening is not None
    assert opening.rpc is RPC
    assert (20.0, "gzip", {"gzip", "br"}) == (
        opening.timeout_s,
        opening.encoding,
        set(opening.accepts),
    )
    assert (("k", "v"),) == opening.metadata()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1H", 3600.0), ("2M", 120.0), ("3S", 3.0), ("4m", 0.004), ("5u", 5e-6), ("99999999n", 0.1)],
)
def test_timeouts_have_units(text: str, seconds: float) -> None:
    opening = read(grpc_timeout=text)

    assert opening is not None
    assert seconds == pytest.approx(opening.timeout_s)


def test_metadata_in_base64_are_bytes() -> None:
    for text in ("AAH/", "AAE", "AAE="):
        opening = read(**{"key_bin": text})
        assert opening is not None
        ((name, value),) = opening.metadata()
        assert "key-bin" == name
        assert isinstance(value, bytes)
        assert b"\x00\x01" == value[:2]


@pytest.mark.parametrize("text", ["", "S", "123456789S", "-1S", "1s", "1.5S"])
def test_what_is_no_timeout_is_refused(text: str) -> None:
    assert b"13" == refusal(grpc_timeout=text)[b"grpc-status"]


def test_other_refusals_say_why() -> None:
    assert b"415" == refusal(content_type="application/grpc-web")[b":status"]
    assert b"415" == refusal(content_type="text/plain")[b":status"]
    assert b"13" == refusal(k_bin="A")[b"grpc-status"]
    unknown = refusal(grpc_encoding="snappy")
    assert (b"12", b"identity,deflate,gzip") == (
        unknown[b"grpc-status"],
        unknown[b"grpc-accept-encoding"],
    )
    fields = HEADERS | {b":path": b"/a.B/D"}
    opening = read_opening(tuple(fields.items()), {b"/a.B/C": RPC})
    assert opening is not None
    assert (only_trailers(12, ""), 12) == (opening.refusal, opening.refusal_code)
    opening = read_opening(tuple((HEADERS | {b":method": b"GET"}).items()), {})
    assert opening is not None
    assert opening.refusal.startswith(b"\x08\x03405")
    assert 2 == opening.refusal_code  # what a client of gRPC makes of it


@pytest.mark.parametrize(
    "headers",
    [
        (),
        tuple(HEADERS.items())[1:],
        ((b":path", b"/x"), *HEADERS.items()),
        ((b"Upper", b"x"), *HEADERS.items()),
        ((b"", b"x"), *HEADERS.items()),
        ((b"a b", b"x"), *HEADERS.items()),
    ],
)
def test_what_is_no_request_is_none(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    assert read_opening(headers, {}) is None


@pytest.mark.parametrize("text", ["plain", "", "100% ~", "ünï\n\0", "\ud800"])
def test_a_text_can_be_read_back_from_what_is_sent(text: str) -> None:
    sent = percent_encoded(text)

    assert sent.isascii()
    assert sent.decode().isprintable()
    read_back = urllib.parse.unquote_to_bytes(sent)
    assert text.encode("utf-8", "replace") == read_back
