"""Answers that wait for nobody, and what streams make the server keep: all of it has room first."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack

import grpc
import numpy as np
import pytest

from tests.support import raw_http2 as h2
from tests.support.clients import infer_message
from tests.support.process_memory import pss_mib
from tests.support.raw_http import raw_request
from tests.support.scraping import sum_series
from tests.support.server import Server, Written, tensor
from tests.support.waiting import eventually
from tests.system.attacks.connections import connect
from zmqtriton_extras.door.tests.raw_door import RawDoor

MIB = 1 << 20
LIMIT = 64 * MIB
#: What an allocator keeps for later messages, and what lies between two processes.
KEPT_MIB = 64
#: Between two looks at the memory of processes, each of which walks through their pages.
_LOOK_S = 0.05
_SERVICE = "/inference.GRPCInferenceService"
INFER, STREAM = f"{_SERVICE}/ModelInfer", f"{_SERVICE}/ModelStreamInfer"
_MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        sizes = [int(pb_utils.get_input_tensor_by_name(r, "KIB").as_numpy()[0]) for r in requests]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(size << 8, np.float32))])
            for size in sizes
        ]
"""
_STREAM_MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            kib, count = (
                int(pb_utils.get_input_tensor_by_name(request, name).as_numpy()[0])
                for name in ("KIB", "COUNT")
            )
            sender = request.get_response_sender()
            for _ in range(count):
                output = pb_utils.Tensor("OUT", np.zeros(kib << 8, np.float32))
                sender.send(pb_utils.InferenceResponse([output]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
_STREAM_CONFIG = """
backend: "python"
model_transaction_policy { decoupled: true }
input [
  { name: "KIB" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "COUNT" data_type: TYPE_INT32 dims: [ 1 ] }
]
output { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }
"""
_CONFIG = """
backend: "python"
input { name: "KIB" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }
"""
#: Nothing is read of the data, and all frames of an answer fit.
UNREAD = h2.PREFACE + h2.NO_WINDOW

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "frontends/process/test_ledger.py::test_requests_and_answers_come_out_of_one_budget",
        "frontends/process/test_ledger.py::test_answers_of_one_client_leave_as_much_for_others",
        "frontends/grpc_api/transport/test_large_answers.py::test_answers_that_are_not_read_are_bounded_and_go_with_their_clients",
        "frontends/gateway/test_streams.py::test_a_grant_waits_for_room",
    ),
    pytest.mark.server(
        models=[
            "identity_fp32",
            Written("sized", _CONFIG, _MODEL),
            Written("another", _CONFIG, _MODEL),
            Written("streamed", _STREAM_CONFIG, _STREAM_MODEL),
        ],
        options=(
            f"--client-memory-byte-size={LIMIT}",
            "--grpc-processes=1",
            "--zmq-door",
            "--runtime-directory=@DIRECTORY@/r",
        ),
    ),
]


def _held_mib(server: Server, role: str) -> float:
    return sum_series(server, "zmqtriton_client_memory_bytes", kind="answers", role=role) / MIB


def _request(model: str, **numbers: int) -> bytes:
    return infer_message(model, **{n: np.array([v], np.int32) for n, v in numbers.items()})


def _is_answered(server: Server, kib: int) -> bool:
    """Return whether another client gets an answer of that size."""
    with grpc.insecure_channel(server.grpc_address) as channel:
        try:
            return (
                len(channel.unary_unary(INFER)(_request("another", KIB=kib), timeout=10))
                > kib << 10
            )
        except grpc.RpcError:
            return False


def _ask_on_a_stream(client: h2.Connection, kib: int, count: int) -> None:
    client.send(
        h2.headers_frame(1, STREAM), *[h2.data_frame(1, _request("sized", KIB=kib))] * count
    )


def _ask_at_once(client: h2.Connection, kib: int, count: int) -> None:
    for number in range(1, 2 * count, 2):
        data = h2.data_frame(number, _request("sized", KIB=kib), flags=h2.END_STREAM)
        client.send(h2.headers_frame(number, INFER), data)


@pytest.mark.parametrize("ask", [_ask_on_a_stream, _ask_at_once], ids=["stream", "unary"])
@pytest.mark.parametrize(("kib", "count", "clients"), [(1000, 250, 1), (20, 400, 30)])
def test_answers_that_are_not_read_have_room_and_leave_some(
    server: Server, ask: Callable[..., None], kib: int, count: int, clients: int
) -> None:
    before = pss_mib(server, "grpc", "stub")
    with ExitStack() as stack:
        for _ in range(clients):
            ask(stack.enter_context(h2.Connection(server.grpc_port, UNREAD)), kib, count)
        eventually(lambda: _held_mib(server, "grpc") > 8, 30, "they wait")
        eventually(lambda: _is_answered(server, 2000), 60, "another client is answered")
        limit_mib = before + LIMIT // MIB + KEPT_MIB
        eventually(
            lambda: pss_mib(server, "grpc", "stub") < limit_mib, 20, "what is held is bounded"
        )

    eventually(lambda: _held_mib(server, "grpc") == 0, 40, "all of it is free")


def test_answers_that_wait_to_be_written_have_room(server: Server) -> None:
    before = pss_mib(server, "http", "stub")
    document = {"inputs": [tensor("KIB", "INT32", [24 << 10])]}
    data = raw_request("POST", "/v2/models/sized/infer", json.dumps(document).encode())

    with ExitStack() as stack:
        clients = [connect(server, stack, data, 4096) for _ in range(12)]
        peak, begun, refused = 0, time.monotonic(), 0.0
        while (seconds := time.monotonic() - begun) < 3 or (not refused and seconds < 60):
            peak = max(peak, pss_mib(server, "http", "stub"))
            refused = sum_series(
                server, "zmqtriton_client_memory_refused_total", kind="answers", role="http"
            )
            time.sleep(_LOOK_S)

        assert refused, len(clients)
        # a model has made what is refused, and keeps the room for a while
        assert peak < before + 12 * 24, "24 MiB of each client, and the same as text"


def _ask_over_grpc(server: Server, stack: ExitStack, kib: int, count: int) -> None:
    client = stack.enter_context(h2.Connection(server.grpc_port, UNREAD))
    request = _request("streamed", KIB=kib, COUNT=count)
    client.send(h2.headers_frame(1, STREAM), h2.data_frame(1, request))


def _ask_for_events(server: Server, stack: ExitStack, kib: int, count: int) -> None:
    body = json.dumps({"KIB": kib, "COUNT": count}).encode()
    connect(server, stack, raw_request("POST", "/v2/models/streamed/generate_stream", body), 4096)


def _ask_at_the_door(server: Server, stack: ExitStack, kib: int, count: int) -> None:
    client = stack.enter_context(RawDoor(f"{server.directory.parent}/r/door", receive_limit=1))
    inputs = [{"name": name, "datatype": "INT32", "shape": [1]} for name in ("KIB", "COUNT")]
    data = [struct.pack("<i", number) for number in (kib, count)]
    client.send("infer", {"model": "streamed", "inputs": inputs}, *data)


@pytest.mark.parametrize(
    ("ask", "role"),
    [(_ask_over_grpc, "grpc"), (_ask_for_events, "http"), (_ask_at_the_door, "door")],
    ids=["grpc", "generate_stream", "door"],
)
def test_what_a_model_makes_for_a_stream_that_is_not_read_is_bounded(
    server: Server, ask: Callable[..., None], role: str
) -> None:
    before = pss_mib(server)
    with ExitStack() as stack:
        ask(server, stack, 8 << 10, 100)  # 800 MiB
        eventually(lambda: _held_mib(server, role) >= 7, 30, "something waits for the client")
        peak, end = 0, time.monotonic() + 2
        while time.monotonic() < end:
            peak = max(peak, pss_mib(server))
            time.sleep(_LOOK_S)
        assert peak < before + LIMIT // MIB + KEPT_MIB

    eventually(lambda: _held_mib(server, role) == 0, 40, "all of it is free")


def test_a_stream_of_much_more_than_there_is_room_for_arrives(server: Server) -> None:
    request = _request("streamed", KIB=4 << 10, COUNT=40)  # 160 MiB
    with grpc.insecure_channel(
        server.grpc_address, options=[("grpc.max_receive_message_length", -1)]
    ) as channel:
        answers = channel.stream_stream(STREAM)(iter([request]), timeout=60)
        sizes = [len(answer) for answer in answers]

    assert 40 == len([size for size in sizes if size > 4 * MIB])
