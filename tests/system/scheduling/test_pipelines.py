"""Ensembles in real servers, asked by real clients."""

from __future__ import annotations

import queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client

from tests.support.clients import infer_inputs, module_of, open_client
from tests.support.server import Server

pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.server(
        models=[
            "doubled",
            "relay",
            "streamed",
            "add_sub",
            "identity_fp32",
            "tokens",
            "string_upper",
        ],
    ),
]
PROTOCOLS = pytest.mark.parametrize("protocol", ["http", "grpc"])


def infer(server: Server, protocol: str, model: str, **arrays: np.ndarray) -> Any:
    """The result, by tritonclient."""
    with open_client(server, protocol) as client:
        return client.infer(model, infer_inputs(module_of(client), **arrays))


# ---------------------------------------------------------------- ensembles


@PROTOCOLS
def test_an_ensemble_answers_what_its_steps_have_made(server: Server, protocol: str) -> None:
    left = np.arange(32, dtype=np.float32).reshape(2, 16)
    right = np.ones((2, 16), np.float32)

    result = infer(server, protocol, "doubled", LEFT=left, RIGHT=right)

    assert np.array_equal(2 * left, result.as_numpy("LEFT_TWICE"))
    assert np.array_equal(2 * right, result.as_numpy("RIGHT_TWICE"))


@pytest.mark.parametrize("elements", [0, 1, 150_000, 4_000_000])
@PROTOCOLS
def test_tensors_of_any_size_pass_through(server: Server, protocol: str, elements: int) -> None:
    array = np.random.default_rng(elements).random(elements, dtype=np.float32)

    result = infer(server, protocol, "relay", X=array)

    assert np.array_equal(array, result.as_numpy("Y"))
    assert np.array_equal(array, result.as_numpy("Z"))


@pytest.mark.row("E55")
def test_a_stream_flows_through_the_steps_in_order(server: Server) -> None:
    count = 1000
    results: queue.Queue[Any] = queue.Queue()
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(lambda result, error: results.put((result, error)))
        [tensor] = infer_inputs(grpc_client, COUNT=np.array([count], np.int32))
        client.async_stream_infer("streamed", [tensor])
        got = [results.get(timeout=60) for _ in range(count)]
        client.stop_stream()

    assert [None] * count == [error for _, error in got]
    tokens = [bytes(result.as_numpy("UPPER")[0]) for result, _ in got]
    assert [b"TOKEN%d" % number for number in range(count)] == tokens


# ------------------------------------------------------------------- deaths
