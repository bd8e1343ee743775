"""Streams whose outputs have their input's place in a client's memory, which the model reads again.

The content of each input follows from a seed, so that each response is known before.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tritonclient.grpc as triton

from tests.support.server import Server, Written

COUNT = 150_000
SIZE = 4 * COUNT
RESPONSES = 4
PATH = Path(f"/dev/shm/zmqtriton_under_{os.getpid()}")
#: Two names of one file.
NAMES = ("a", "b")

_CONFIG = """
backend: "python"
model_transaction_policy { decoupled: true }
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
"""
#: Each response is the input as it is read then, plus its number. The model reads for the next one
#: when its client has got the one before.
_CODE = f"""
import json
import os
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            path = json.loads(request.parameters())["path"]
            array = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            sender = request.get_response_sender()
            for number in range({RESPONSES}):
                while not os.path.exists(path + str(number)):
                    time.sleep(0.002)
                out = pb_utils.Tensor("OUT", array + number)
                sender.send(pb_utils.InferenceResponse([out]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
_ENSEMBLE = """
platform: "ensemble"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
ensemble_scheduling { step [ {
  model_name: "again" model_version: -1
  input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" }
} ] }
"""
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=[Written("again", _CONFIG, _CODE), Written("whole", _ENSEMBLE)]),
]


class Spot(NamedTuple):
    """The place of a tensor: a name of the file, and the offset in it."""

    name: str
    offset: int


@contextmanager
def registered(server: Server) -> Iterator[None]:
    """Keep the file under both of its names."""
    PATH.write_bytes(bytes(3 * SIZE))
    PATH.chmod(0o600)
    url = "/v2/systemsharedmemory"
    body = {"key": f"/{PATH.name}", "offset": 0, "byte_size": 3 * SIZE}
    for name in NAMES:
        assert (200, None) == server.request_json(f"{url}/region/{name}/register", body)
    try:
        yield
    finally:
        assert (200, None) == server.request_json(f"{url}/unregister", {})
        PATH.unlink()


def write(array: Any, offset: int) -> None:
    with PATH.open("r+b") as file:
        file.seek(offset)
        file.write(array.tobytes())


def read(offset: int) -> Any:
    return np.fromfile(PATH, np.int32, COUNT, offset=offset)


def numbers(seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 1 << 30, COUNT, np.int32)


def ask(
    server: Server, model: str, source: Spot, target: Spot, path: Path, look: Callable[[int], None]
) -> None:
    """Send a request by a stream of gRPC; `look` is called after each response."""
    came: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    tensor = triton.InferInput("IN", [COUNT], "INT32")
    tensor.set_shared_memory(source.name, SIZE, source.offset)
    output = triton.InferRequestedOutput("OUT")
    output.set_shared_memory(target.name, SIZE, target.offset)
    with triton.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(lambda result, error: came.put((result, error)))
        parameters = {"path": str(path)}
        client.async_stream_infer(model, [tensor], outputs=[output], parameters=parameters)
        for number in range(RESPONSES):
            Path(f"{path}{number}").touch()
            _, error = came.get(timeout=60)
            assert error is None
            look(number)
        client.stop_stream()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (Spot("a", 0), Spot("a", 0)),
        (Spot("a", 0), Spot("b", 0)),
        (Spot("b", SIZE), Spot("a", SIZE + SIZE // 2)),
        (Spot("a", SIZE), Spot("a", SIZE - 64)),
        (Spot("a", 0), Spot("b", SIZE)),
    ],
    ids=["the same place", "another name", "its second half", "the byte before", "beside it"],
)
@pytest.mark.parametrize("model", ["again", "whole"])
def test_a_model_reads_its_input_as_it_was_though_responses_are_written_over_it(
    server: Server, tmp_path: Path, model: str, source: Spot, target: Spot
) -> None:
    expected = numbers(7)
    with registered(server):
        write(expected, source.offset)
        wrong: list[int] = []

        def look(number: int) -> None:
            if not np.array_equal(expected + number, read(target.offset)):
                wrong.append(number)

        ask(server, model, source, target, tmp_path / "go", look)

    assert [] == wrong
