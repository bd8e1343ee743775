from __future__ import annotations

import asyncio
import gzip
import json
import zlib

import pytest

from tests.frontends.http_api.fakes import FakeGateway
from tests.frontends.http_api.inference.test_infer import document, infer
from zmqtriton_floor.errors import InvalidArgument, Unsupported
from zmqtriton_frontends.http_api.inference.compression import inflate
from zmqtriton_frontends.process.codecs import choose, deflate

TEXT = json.dumps(document()).encode()


@pytest.mark.parametrize(
    ("coding", "data"),
    [
        ("gzip", gzip.compress(TEXT, mtime=0)),
        ("GZIP ", gzip.compress(TEXT, mtime=0)),
        ("deflate", zlib.compress(TEXT)),
        ("identity", TEXT),
        ("", TEXT),
    ],
)
def test_a_body_may_be_compressed(coding: str, data: bytes) -> None:
    result = infer(FakeGateway(), data, headers={"Content-Encoding": coding})

    assert result.status_code == 200, result.text


@pytest.mark.parametrize("coding", ["br", "gzip, gzip", "zstd", "x"])
@pytest.mark.row("C30")
def test_another_coding_is_refused_with_those_that_are_not(coding: str) -> None:
    result = infer(FakeGateway(), TEXT, headers={"Content-Encoding": coding})

    assert (result.status_code, result.json) == (501, {"error": "Unsupported compression type"})
    assert result.headers["accept-encoding"] == "gzip, deflate"


def inflated(data: bytes, coding: str, max_bytes: int) -> bytes | bytearray:
    return asyncio.run(inflate(data, coding, max_bytes, object(), hold=lambda size: None))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"zzzz",
        gzip.compress(TEXT, mtime=0)[:-9],
        gzip.compress(TEXT, mtime=0) + b"x",
        gzip.compress(TEXT, mtime=0) * 2,
        zlib.compress(TEXT),
    ],
    ids=["empty", "none", "truncated", "garbage behind", "two members", "deflate"],
)
def test_data_that_are_not_exactly_one_stream_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgument, match="failed to decompress the request body as gzip"):
        inflated(data, "gzip", 1 << 20)


def test_inflating_stops_at_the_limit() -> None:
    bomb = gzip.compress(bytes(64 << 20))

    assert len(inflated(gzip.compress(bytes(1000)), "gzip", 1000)) == 1000
    with pytest.raises(InvalidArgument, match="exceeds the maximum allowed input size of 1000 "):
        inflated(bomb, "gzip", 1000)


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("gzip, deflate", "gzip"),
        ("gzip;q=0.5, deflate;q=0.8", "deflate"),
        ("gzip;q=0", ""),
        ("gzip;q=0.5, identity", ""),
        ("br, zstd", ""),
        ("GZip ; Q=1", "gzip"),
        ("gzip;q=x", ""),
        ("gzip;q=nan", ""),
        ("*", ""),
        ("", ""),
        (";q=" * 400, ""),
    ],
)
@pytest.mark.row("C30")
def test_the_best_coding_that_a_client_accepts_is_chosen(accepted: str, coding: str) -> None:
    assert choose(accepted) == coding


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_response_is_compressed_for_who_accepts_it(coding: str) -> None:
    result = infer(FakeGateway(), TEXT, headers={"Accept-Encoding": coding})

    assert result.headers["content-encoding"] == coding
    assert json.loads(inflated(result.content, coding, 1000))["model_name"] == "identity"


@pytest.mark.row("C30")
def test_the_header_length_of_a_compressed_response_is_that_of_the_json() -> None:
    body = document(parameters={"binary_data_output": True})

    result = infer(FakeGateway(), body, headers={"Accept-Encoding": "gzip"})

    whole = gzip.decompress(result.content)
    length = int(result.headers["Inference-Header-Content-Length"])
    assert json.loads(whole[:length])["outputs"][0]["parameters"] == {"binary_data_size": 8}
    assert len(whole) == length + 8


def test_what_is_deflated_comes_back() -> None:
    assert zlib.decompress(deflate([TEXT], "deflate")) == TEXT
    with pytest.raises(Unsupported):
        inflated(TEXT, "br", 1000)
