"""Large tensors through a real server: by reference, unchanged, and gone afterwards."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tritonclient.http as http_client

from tests.support.clients import infer_inputs, module_of, open_client
from tests.support.process_memory import segments
from tests.support.scraping import read_series, sum_series
from tests.support.server import Server, status_of
from tests.support.waiting import eventually

MODEL = "identity_fp32"
#: Empty segments go back after some seconds, those of the dead after some more.
REST_S = 60.0


pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.server(models=[MODEL, "keeper"], own=True),
]


@pytest.fixture(params=["http", "grpc"])
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[Any]:
    with open_client(server, request.param) as client:
        yield client


def _infer(client: Any, array: np.ndarray) -> Any:
    return client.infer(MODEL, infer_inputs(module_of(client), INPUT0=array)).as_numpy("OUTPUT0")


def _noise(size: int) -> np.ndarray:
    return np.random.default_rng(size).random(size, dtype=np.float32)


def _traffic(server: Server) -> float:
    rows = read_series(server).items()
    return sum(value for name, value in rows if name.startswith("zmqtriton_broker_bytes"))


def _shared(server: Server) -> float:
    return sum_series(server, "zmqtriton_shared_memory_bytes")


def _mapped(server: Server) -> int:
    """Mappings of segments in all processes."""
    return sum(_segments_of(pid) for pids in server.pids().values() for pid in pids)


def _segments_of(pid: int) -> int:
    # Smaller ones are no segments of an arena, and neither is the page of a stub's progress.
    return sum(size >= 1 << 20 for size, _ in segments(pid))


def _is_at_rest(server: Server) -> bool:
    leased = sum_series(server, "zmqtriton_leased_blocks")
    return not leased and not _shared(server) and not _mapped(server)


def test_16_mib_come_back_unchanged_and_do_not_travel_through_sockets(
    server: Server, client: Any
) -> None:
    array = _noise(4 << 20)
    assert 16 << 20 == array.nbytes
    _infer(client, array)
    before, count = _traffic(server), 5

    for _ in range(count):
        assert np.array_equal(array, _infer(client, array))

    # The scrapes themselves are in it.
    assert _traffic(server) - before < count * (64 << 10)


@pytest.fixture
def keeping(server: Server) -> Iterator[Any]:
    """A client whose inputs the model `keeper` has until the test has ended."""
    with open_client(server, "http") as client:
        yield client
        _keep(client, _noise(1), milliseconds=-1)


def test_metrics_tell_who_has_how_much(server: Server, keeping: Any) -> None:
    _keep(keeping, _noise(1 << 20))  # what it has written cannot be passed on

    rows = read_series(server)

    assert rows['zmqtriton_shared_memory_bytes{role="http"}'] >= 4 << 20
    assert rows['zmqtriton_shared_memory_bytes{role="stub"}'] >= 4 << 20
    assert rows['zmqtriton_shared_memory_bytes{role="broker"}'] == 0


def _keep(client: Any, array: np.ndarray, milliseconds: int = 0) -> Any:
    pause = np.array([milliseconds], dtype=np.int32)
    return client.infer("keeper", infer_inputs(http_client, INPUT0=array, MS=pause))


def test_a_model_may_write_into_its_inputs_and_keep_them(keeping: Any) -> None:
    for i in range(12):
        # The same block again and again: what is kept must not change with it.
        array = np.full(200_000 + i % 2, i, dtype=np.float32)

        result = _keep(keeping, array)

        assert np.array_equal(array + 1, result.as_numpy("OUTPUT0"))
        kept = result.as_numpy("KEPT").reshape(-1, 2)
        assert np.array_equal(kept[:, 0], kept[:, 1])


def _ask_slowly(port: int, milliseconds: int) -> int:
    """The status of a request with 16 MiB that is executed for so long; 0: no answer."""
    body = np.zeros(4 << 20, dtype=np.float32).tobytes() + milliseconds.to_bytes(4, "little")
    tensors: list[dict[str, Any]] = [
        {"name": "INPUT0", "datatype": "FP32", "shape": [4 << 20]},
        {"name": "MS", "datatype": "INT32", "shape": [1]},
    ]
    for tensor, size in zip(tensors, (16 << 20, 4), strict=True):
        tensor["parameters"] = {"binary_data_size": size}
    head = json.dumps({"inputs": tensors, "parameters": {"binary_data_output": True}}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v2/models/keeper/infer", head + body)
    request.add_header("Inference-Header-Content-Length", str(len(head)))
    return status_of(request, within_s=60)


def test_what_a_killed_stub_held_is_freed(server: Server) -> None:
    [stub] = server.stub_pids("keeper")
    before = _segments_of(stub)
    with ThreadPoolExecutor(1) as thread:
        request = thread.submit(_ask_slowly, server.http_port, 60_000)
        eventually(lambda: _segments_of(stub) - before, 30, "it has mapped its input")

        os.kill(stub, signal.SIGKILL)

        assert 503 == request.result(30)
    eventually(lambda: server.status("/v2/models/keeper/ready") == 200, 30, "another one")
    eventually(lambda: _is_at_rest(server), REST_S, "memory of the request and of the dead")
    with open_client(server, "http") as client:
        array = _noise(1 << 20)
        assert np.array_equal(array + 1, _keep(client, array).as_numpy("OUTPUT0"))
