"""Clients that make the server hold what it can: bounded, and no other client's trouble."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

from tests.support import raw_http2 as h2
from tests.support.clients import infer_message
from tests.support.process_memory import uss_mib
from tests.support.raw_http import raw_request, send_raw
from tests.support.scraping import sum_series
from tests.support.server import Server, Written, tensor
from tests.support.waiting import eventually
from tests.system.attacks.connections import connect, is_served

MIB = 1 << 20
LIMIT = 256 * MIB
#: What an allocator keeps for later messages, at the end of its heap and below what still lives
#: there; clearly less than what is held before.
KEPT_MIB = 160
GRPC_INFER = "/inference.GRPCInferenceService/ModelInfer"
#: Answers with as much as it is told.
_LARGE = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        sizes = [int(pb_utils.get_input_tensor_by_name(r, "MIB").as_numpy()[0]) for r in requests]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(size << 18, np.float32))])
            for size in sizes
        ]
"""
_CONFIG = """
backend: "python"
input { name: "MIB" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }
"""


pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.server(
        models=["identity_fp32", Written("large", _CONFIG, _LARGE)],
        options=(f"--client-memory-byte-size={LIMIT}",),
    ),
]


@contextmanager
def _others_are_served(server: Server) -> Iterator[None]:
    """Ask all the time: answers come, however busy the machine is."""
    is_over, waits = threading.Event(), list[float]()

    def ask() -> None:
        while not is_over.is_set():
            begun = time.monotonic()
            assert is_served(server)
            waits.append(time.monotonic() - begun)
            is_over.wait(0.05)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        is_over.set()
        asking.join()
    assert max(waits) < 30.0, waits


def _told_bytes(server: Server) -> int:
    """Return what the metrics say of incomplete requests over HTTP."""
    return int(sum_series(server, "zmqtriton_client_memory_bytes", kind="requests", role="http"))


def test_messages_that_never_end_keep_nobody_else_out(server: Server) -> None:
    before = uss_mib(server, "grpc")
    port = int(server.grpc_address.rpartition(":")[2])
    part = bytes(15_000)
    with _others_are_served(server), ExitStack() as stack:
        for _ in range(4):
            client = stack.enter_context(h2.Connection(port))
            for number in range(1, 65, 2):
                # they say that they are compressed, so they cannot go into shared memory
                first = b"\1" + (1 << 30).to_bytes(4, "big") + part
                client.send(h2.headers_frame(number, GRPC_INFER), h2.frame(0, 0, number, first))
            for _ in range(60):
                if not client.send(*(h2.frame(0, 0, n, part) for n in range(1, 65, 2))):
                    break
        assert uss_mib(server, "grpc") < before + LIMIT // MIB + 64

        with h2.Connection(port) as other:
            data = h2.data_frame(1, infer_message("large", MIB=np.array([1], np.int32)))
            half = len(data) // 2
            other.send(h2.headers_frame(1, GRPC_INFER), data[:half])
            time.sleep(0.1)
            other.send(data[half:], h2.frame(0, h2.END_STREAM, 1, b""))
            assert b"OUT" in other.read_until(b"OUT")

    eventually(lambda: uss_mib(server, "grpc") < before + KEPT_MIB, 60, "all of it is free")


@pytest.mark.long(
    "system/attacks/test_held_memory.py::test_messages_that_never_end_keep_nobody_else_out",
    "frontends/process/test_ledger.py::test_who_does_not_move_is_ended_where_there_is_no_room_for_others",
)
def test_bodies_that_never_end_keep_nobody_else_out(server: Server) -> None:
    before = uss_mib(server, "http")
    with _others_are_served(server), ExitStack() as stack:
        for _ in range(40):
            client = connect(server, stack, b"")
            head = "POST /v2/models/identity_fp32/infer HTTP/1.1\r\nHost: localhost\r\n"
            client.sendall(f"{head}Content-Length: {64 * MIB}\r\n\r\n".encode())
            client.settimeout(1)
            try:
                client.sendall(bytes(16 * MIB))
            except (TimeoutError, ConnectionError):
                continue
        assert uss_mib(server, "http") < before + 2 * LIMIT // MIB
        eventually(lambda: MIB < _told_bytes(server) < LIMIT, 60, "the metrics say so")

        body = json.dumps({"inputs": [tensor("INPUT0", "FP32", [0.5] * (1 << 20))]}).encode()
        data = raw_request("POST", "/v2/models/identity_fp32/infer", body, Connection="close")
        assert send_raw(server.http_port, data).statuses[0] in (200, 503)

    eventually(lambda: uss_mib(server, "http") < before + 128, 60, "all of it is free")
