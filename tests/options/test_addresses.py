"""Addresses to listen on, as people write them."""

from __future__ import annotations

import pytest

from zmqtriton.options import parse


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("[::1]", "::1"),
        ("::1", "::1"),
        # as Triton's HTTP wants it
        ("ipv6:::1", "::1"),
        ("ipv6:[::1]", "::1"),
        ("ipv4:10.0.0.7", "10.0.0.7"),
        ("desk.example", "desk.example"),
    ],
)
def test_an_address_of_ipv6_may_have_brackets(text: str, address: str) -> None:
    words = [f"--{service}-address={text}" for service in ("http", "grpc", "metrics")]
    options = parse(["--model-repository=/models", *words])

    assert {address} == {options.http_address, options.grpc_address, options.metrics_address}
    assert (address == "::1") == options.grpc_reflection
