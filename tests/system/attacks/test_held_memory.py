"""Clients that make the server hold what it can: bounded, and no other client's trouble."""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psutil
import pytest

from tests.support import raw_http2 as h2
from tests.support.raw_http import raw_request, send_raw
from tests.support.server import Server
from tests.support.waiting import eventually, value_at_rest
from tests.support.waits.endless_requests import send_endless_body, send_endless_message
from tests.system.attacks.connections import connect, is_served
from zmqtriton_protos import message

pytestmark = pytest.mark.system

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


MODELS = ("identity_fp32",)
OPTIONS = (f"--client-memory-byte-size={LIMIT}",)


def prepare(server: Server) -> None:
    model = server.repository / "large" / "1" / "model.py"
    model.parent.mkdir(parents=True)
    model.write_text(_LARGE)
    (model.parent.parent / "config.pbtxt").write_text(_CONFIG)


def _own_mib(server: Server, role: str) -> int:
    pids = server.pids()[role]
    return sum(psutil.Process(pid).memory_full_info().uss for pid in pids) // MIB


def _mapped_mib(server: Server) -> int:
    """Return what the process of gRPC has, its part of shared memory included."""
    return sum(psutil.Process(pid).memory_full_info().pss for pid in server.pids()["grpc"]) // MIB


def _total_mib(server: Server) -> int:
    pids = [pid for own in server.pids().values() for pid in own]
    return sum(psutil.Process(pid).memory_full_info().pss for pid in pids) // MIB


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
    lines = server.metrics_text().splitlines()
    beginning = 'zmqtriton_client_memory_bytes{kind="requests",role="http"} '
    return sum(int(line.removeprefix(beginning)) for line in lines if line.startswith(beginning))


def _ask_large(mib: int) -> bytes:
    tensor = {"name": "MIB", "datatype": "INT32", "shape": [1]}
    request: Any = message("inference.ModelInferRequest")(
        model_name="large",
        inputs=[tensor],
        raw_input_contents=[mib.to_bytes(4, "little")],
    )
    return bytes(request.SerializeToString())


@pytest.mark.long(
    "frontends/http_api/server/test_inferences.py::test_who_does_not_read_is_not_read_of"
)
def test_many_who_send_requests_without_waiting_fill_nothing(server: Server) -> None:
    many = raw_request("GET", "/v2/models/identity_fp32/config") * 2000
    before = _own_mib(server, "http")

    with ExitStack() as stack, _others_are_served(server):
        clients = [connect(server, stack, b"") for _ in range(120)]
        for client in clients:
            client.setblocking(False)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            for client in clients:
                try:
                    client.send(many)
                except BlockingIOError:
                    continue
            time.sleep(0.01)
        # 128 KiB is read ahead of each, and 64 KiB of answers wait
        assert _own_mib(server, "http") < before + 120 // 4 + 32

    assert _own_mib(server, "http") < before + 120 // 4 + 32


@pytest.mark.long(
    "frontends/grpc_api/transport/test_large_answers.py::test_answers_that_are_not_read_are_bounded_and_go_with_their_clients"
)
def test_answers_over_grpc_that_nobody_reads_are_bounded(server: Server) -> None:
    before = _total_mib(server)
    with _others_are_served(server), ExitStack() as stack:
        port = int(server.grpc_address.rpartition(":")[2])
        for _ in range(4):
            client = stack.enter_context(h2.Connection(port))
            for number in range(1, 11, 2):
                data = h2.data_frame(number, _ask_large(64), flags=h2.END_STREAM)
                client.send(h2.headers_frame(number, GRPC_INFER), data)
        time.sleep(2)

        # for a moment the stub keeps what was refused
        limit_mib = before + LIMIT // MIB + 64
        eventually(lambda: _total_mib(server) < limit_mib, 30, "what is held is bounded")

    eventually(lambda: _total_mib(server) < before + 96, 60, "all of it is free")


def test_messages_that_never_end_keep_nobody_else_out(server: Server) -> None:
    before = _own_mib(server, "grpc")
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
        assert _own_mib(server, "grpc") < before + LIMIT // MIB + 64

        with h2.Connection(port) as other:
            data = h2.data_frame(1, _ask_large(1))
            half = len(data) // 2
            other.send(h2.headers_frame(1, GRPC_INFER), data[:half])
            time.sleep(0.1)
            other.send(data[half:], h2.frame(0, h2.END_STREAM, 1, b""))
            assert b"OUT" in other.read_until(b"OUT")

    eventually(lambda: _own_mib(server, "grpc") < before + KEPT_MIB, 60, "all of it is free")


def test_bodies_that_never_end_keep_nobody_else_out(server: Server) -> None:
    before = _own_mib(server, "http")
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
        assert _own_mib(server, "http") < before + 2 * LIMIT // MIB
        eventually(lambda: MIB < _told_bytes(server) < LIMIT, 60, "the metrics say so")

        tensor = {"name": "INPUT0", "shape": [1 << 20], "datatype": "FP32"}
        body = json.dumps({"inputs": [{**tensor, "data": [0.5] * (1 << 20)}]}).encode()
        data = raw_request("POST", "/v2/models/identity_fp32/infer", body, Connection="close")
        assert send_raw(server.http_port, data).statuses[0] in (200, 503)

    eventually(lambda: _own_mib(server, "http") < before + 128, 60, "all of it is free")


@pytest.mark.long(
    "frontends/http_api/server/test_large_bodies.py::test_more_than_a_megabyte_is_believed_of_some_clients_at_a_time",
    "system/attacks/test_grpc_attacks.py::test_a_message_at_the_limit_that_never_comes_holds_no_memory",
)
@pytest.mark.parametrize(
    ("send", "port"), [(send_endless_message, "grpc_port"), (send_endless_body, "http_port")]
)
def test_memory_is_made_for_what_has_come_and_not_for_what_is_announced(
    server: Server, send: Callable[[int, int], Any], port: str
) -> None:
    before = _total_mib(server)
    with _others_are_served(server), ExitStack() as stack:
        for size in (130, 40):
            stack.enter_context(send(getattr(server, port), size * MIB))

        held = 16 * value_at_rest(lambda: _total_mib(server) // 16)
        assert held < before + LIMIT // MIB + 64

    # a process of HTTP has only its part of the limit
    eventually(lambda: _total_mib(server) < held - 90, 60, "what has come was held, and is free")
    eventually(lambda: _total_mib(server) < before + KEPT_MIB, 60, "all of it is free")


@pytest.mark.long(
    "frontends/process/test_inflating.py::test_each_step_has_room_before_it_is_made",
    "frontends/grpc_api/transport/test_message_framing.py::test_messages_of_many_clients_have_room_before_they_are_inflated",
)
def test_messages_that_inflate_a_thousandfold_have_room_before(server: Server) -> None:
    def packed(mib: int) -> bytes:
        tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [mib << 18]}
        request: Any = message("inference.ModelInferRequest")(
            model_name="identity_fp32", inputs=[tensor], raw_input_contents=[bytes(mib * MIB)]
        )
        stream = zlib.compressobj(9, zlib.DEFLATED, 31)
        return stream.compress(request.SerializeToString()) + stream.flush()

    def ask(client: h2.Connection, data: bytes) -> None:
        whole = b"\1" + len(data).to_bytes(4, "big") + data
        parts = [h2.frame(0, 0, 1, whole[at : at + 16_000]) for at in range(0, len(whole), 16_000)]
        encoding = b"\0\x0dgrpc-encoding\4gzip"
        block = h2.header_block(GRPC_INFER) + encoding
        client.send(h2.frame(h2.HEADERS, h2.END_HEADERS, 1, block), *parts)
        client.send(h2.frame(0, h2.END_STREAM, 1))

    bomb = packed(200)
    before, peaks, is_over = _mapped_mib(server), list[int](), threading.Event()

    def look() -> None:
        while not is_over.wait(0.02):
            peaks.append(_mapped_mib(server))

    looking = threading.Thread(target=look)
    looking.start()
    with _others_are_served(server), ExitStack() as stack:
        clients = [stack.enter_context(h2.Connection(server.grpc_port)) for _ in range(6)]
        for client in clients:
            ask(client, bomb)
        for client in clients:
            client.read_until(b"grpc-status", 60)
    is_over.set()
    looking.join()

    # a look reads one mapping after the other, and counts twice what is copied meanwhile
    lasting = [min(three) for three in zip(peaks, peaks[1:], peaks[2:], strict=False)]
    assert max(lasting) < before + LIMIT // MIB + 64
    with h2.Connection(server.grpc_port) as client:
        ask(client, packed(60))
        assert b"OUTPUT0" in client.read_until(b"OUTPUT0")
