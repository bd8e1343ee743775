"""Addresses, tokens, states and tensors, without a server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zmqtriton_extras.pytriton.client.auth import (
    create_auth_headers,
    extract_access_token_from_headers,
)
from zmqtriton_extras.pytriton.client.exceptions import PyTritonClientInvalidUrlError
from zmqtriton_extras.pytriton.client.utils import ModelState, find_state, questions
from zmqtriton_extras.pytriton.client.wire.calls import TritonUrl, datatype_name, to_array, to_data


@pytest.mark.row("J40")
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("localhost", "http://localhost:8000"),
        ("localhost:5", "http://localhost:5"),
        ("http://h", "http://h:8000"),
        ("grpc://h", "grpc://h:8001"),
        ("GRPC://h:9/path", "grpc://h:9"),
        ("grpc://[::1]", "grpc://[::1]:8001"),
    ],
)
def test_addresses(url: str, expected: str) -> None:
    parsed = TritonUrl.from_url(url)

    assert expected == parsed.with_scheme
    assert expected.partition("://")[2] == parsed.without_scheme


@pytest.mark.parametrize(
    "url", ["https://h", "ftp://h", "://h", "", "h:x", "http://h:99999", "http://:8000", None, 5]
)
def test_what_is_no_address(url: Any) -> None:
    with pytest.raises(PyTritonClientInvalidUrlError, match="Invalid url"):
        TritonUrl.from_url(url)


def test_the_token_has_a_header_of_each_protocol() -> None:
    http, grpc = (create_auth_headers("t", protocol) for protocol in ("HTTP", "grpc"))

    assert {"triton-access-token": "t"} == http
    assert {"triton-grpc-protocol-triton-access-token": "t"} == grpc
    assert ["t", "t", "t", None, None] == [
        extract_access_token_from_headers(headers)
        for headers in (http, grpc, {**http, **grpc}, {"a": "b"}, None)
    ]


@pytest.mark.parametrize(("token", "protocol"), [("", "http"), (None, "grpc"), ("t", "ftp")])
def test_a_token_without_a_header(token: str | None, protocol: str) -> None:
    with pytest.raises(ValueError, match=r"access_token cannot be None|Invalid protocol 'ftp'"):
        create_auth_headers(token, protocol)


def test_two_tokens_are_one_too_many() -> None:
    headers = {**create_auth_headers("a", "http"), **create_auth_headers("b", "grpc")}

    with pytest.raises(ValueError, match="Conflicting authentication headers"):
        extract_access_token_from_headers(headers)


def test_the_latest_version_has_the_greatest_number() -> None:
    index = [
        {"name": "m", "version": "10", "state": "READY"},
        {"name": "m", "version": "9", "state": "UNAVAILABLE"},
        {"name": "m", "version": "8"},
        {"name": "n"},
    ]

    assert [
        ModelState.READY,
        ModelState.UNAVAILABLE,
        ModelState.LOADING,
        ModelState.UNAVAILABLE,
        ModelState.UNAVAILABLE,
    ] == [
        find_state(index, name, version)
        for name, version in (("m", None), ("m", "9"), ("m", "8"), ("m", "7"), ("n", None))
    ]


def test_no_time_asks_once_and_for_long_enough() -> None:
    assert [(1.0, 0.0)] == list(questions(0.0, 60.0))


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "f8", "S3", "O"])
def test_tensors_there_and_back(dtype: str) -> None:
    array = np.array([[b"1"], [b"0"]]).astype(dtype)
    data = to_data(array)

    back = to_array(datatype_name(array), array.shape, data)

    assert array.tolist() == back.tolist()
    assert back.flags.writeable


def test_bfloat16_is_its_bits_where_numpy_does_not_know_it() -> None:
    [bits] = to_array("BF16", [1], b"\x80\x3f").tolist()

    assert bits in (0x3F80, 1.0)
