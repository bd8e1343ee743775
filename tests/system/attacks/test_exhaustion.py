"""Clients that take what they can get are limited or ended, and others are served."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.support.raw_http import RawResponse, raw_request, send_raw
from tests.support.scraping import sum_series
from tests.support.server import Server
from tests.support.waiting import eventually
from tests.system.attacks.connections import INFER, connect, is_served

pytestmark = pytest.mark.system


MODELS = ("identity_fp32", "journal", "tokens")
OPTIONS = ("--allow-client-shm=true",)


def prepare(server: Server) -> None:
    config = server.repository / "journal" / "config.pbtxt"
    bound = "dynamic_batching { default_queue_policy { max_queue_size: 10 } }\n"
    config.write_text(config.read_text().replace("max_batch_size: 8", "max_batch_size: 1") + bound)


@pytest.fixture
def server(server: Server) -> Iterator[Server]:
    """After each attack others are served, too."""
    yield server
    assert is_served(server)


def _ask(server: Server, path: str, body: bytes) -> RawResponse:
    return send_raw(server.http_port, raw_request("POST", path, body, Connection="close"), 60)


def _mib(server: Server) -> int:
    """Return what all processes together have for themselves, and what they share."""
    pids = [pid for own in server.pids().values() for pid in own]
    return sum(psutil.Process(pid).memory_full_info().pss for pid in pids) >> 20


def _descriptors(server: Server) -> int:
    pids = [pid for own in server.pids().values() for pid in own]
    return sum(psutil.Process(pid).num_fds() for pid in pids)


@contextmanager
def shared_memory_file(size: int) -> Iterator[str]:
    """Its key; the file lasts as long as the block."""
    file = Path("/dev/shm") / f"zmqtriton_exhaustion_{os.getpid()}"
    file.write_bytes(bytes(size))
    try:
        yield file.name
    finally:
        file.unlink()


@pytest.mark.long(
    "frontends/http_api/server/test_connections.py::test_headers_that_trickle_end_the_connection"
)
def test_headers_that_never_end_end_their_connections(server: Server) -> None:
    with ExitStack() as stack:
        slow = [connect(server, stack, b"GET /v2 HTTP/1.1\r\nX: ") for _ in range(300)]
        for _ in range(5):
            for connection in slow:
                with suppress(ConnectionError):  # the server may have had enough of it
                    connection.sendall(b"a")
            assert is_served(server)
            time.sleep(1)

        for connection in slow:
            # Whoever sends on behind the answer may be cut off before reading it.
            with suppress(ConnectionError):
                assert connection.recv(1 << 16).startswith(b"HTTP/1.1 408 ")


@pytest.mark.long(
    "frontends/http_api/server/test_large_bodies.py::test_who_leaves_without_reading_leaves_nothing_behind"
)
def test_large_responses_that_nobody_reads_leave_nothing(server: Server) -> None:
    size = 16 << 20
    tensor = {"name": "INPUT0", "shape": [size // 4], "datatype": "FP32"}
    document = {
        "inputs": [{**tensor, "parameters": {"binary_data_size": size}}],
        "parameters": {"binary_data_output": True},
    }
    text = json.dumps(document).encode()
    lengths = {"Inference_Header_Content_Length": str(len(text))}
    data = raw_request("POST", INFER, text + bytes(size), **lengths)
    before = _mib(server)

    with ExitStack() as stack:
        unread = [connect(server, stack, data, 4096) for _ in range(20)]
        for connection in unread:
            assert connection.recv(12).startswith(b"HTTP/1.1 200")
        assert is_served(server)
        assert _mib(server) < before + 20 * 2 * 16 + 128

    eventually(lambda: _mib(server) < before + 128, 60, "memory of all responses is free")


def test_streams_that_nobody_reads_stop_their_model_and_fill_nothing(server: Server) -> None:
    body = json.dumps({"COUNT": 2_000_000_000}).encode()
    data = raw_request("POST", "/v2/models/tokens/generate_stream", body)
    before = _mib(server)

    with ExitStack() as stack:
        for _ in range(200):
            connect(server, stack, data, 4096)
        executing = partial(sum_series, server, "zmqtriton_executing_count")
        eventually(lambda: executing() >= 200, 60, "the model has all of them")
        for _ in range(3):
            assert is_served(server)
            time.sleep(1)
        assert _mib(server) < before + 256

    def are_cancelled() -> bool:
        lines = server.journal.read_text().splitlines() if server.journal.exists() else []
        return 200 == sum("cancelled" in line for line in lines)

    eventually(are_cancelled, 60, "the model knows that all have gone")


@pytest.mark.long(
    "system/faults/test_overload.py::test_what_is_too_much_is_refused_at_once_and_the_rest_is_answered"
)
def test_a_flood_of_requests_is_refused_beyond_the_queue(server: Server) -> None:
    inputs = [
        {"name": "ID", "shape": [1, 1], "datatype": "BYTES", "data": ["x"]},
        {"name": "MS", "shape": [1, 1], "datatype": "INT32", "data": [500]},
    ]
    body = json.dumps({"inputs": inputs}).encode()
    data = raw_request("POST", "/v2/models/journal/infer", body, Connection="close")

    with ExitStack() as stack:
        many = [connect(server, stack, data) for _ in range(400)]
        statuses = [connection.recv(1 << 16)[9:12] for connection in many]

    assert {b"200", b"503"} == set(statuses)
    # Ten wait and one executes; each second of sending lets two more in.
    assert statuses.count(b"503") > 350


@pytest.mark.long(
    "supervisor/control/test_regions.py::test_without_a_name_all_are_unregistered",
    "supervisor/machine/test_region_files.py::test_a_file_is_open_until_it_is_closed",
)
def test_many_regions_leave_together(server: Server) -> None:
    with shared_memory_file(64) as key:
        prefix = "/v2/systemsharedmemory"
        body = json.dumps({"key": key, "offset": 0, "byte_size": 64}).encode()
        before = _descriptors(server)
        many = [raw_request("POST", f"{prefix}/region/r{n}/register", body) for n in range(100)]
        many.append(raw_request("GET", "/v2", Connection="close"))

        statuses = send_raw(server.http_port, b"".join(many), 60).statuses

        assert [200] * 101 == statuses
        assert _descriptors(server) >= before + 100
        assert [200] == _ask(server, f"{prefix}/unregister", b"").statuses
        eventually(lambda: _descriptors(server) < before + 20, 60, "all regions are closed")


def test_bad_requests_are_not_logged(server: Server) -> None:
    before = server.log_text()
    wrong = [
        raw_request("POST", INFER, b"{"),
        raw_request("GET", "/nowhere"),
        raw_request("DELETE", "/v2"),
        raw_request("POST", "/v2/models/none/infer", b"{}"),
        raw_request("POST", INFER, b'{"inputs":[]}'),
    ]

    last = raw_request("GET", "/nowhere", Connection="close")
    for _ in range(5):
        assert 501 == len(send_raw(server.http_port, b"".join([*wrong * 100, last])).statuses)
    for _ in range(200):
        send_raw(server.http_port, b"GET / nonsense\r\n\r\n")

    assert before == server.log_text()


@pytest.mark.long(
    "frontends/http_api/inference/test_json_documents.py::test_the_loop_goes_on_while_a_large_document_is_read"
)
def test_others_are_answered_while_many_numbers_are_read(server: Server) -> None:
    count = 5_000_000
    head = '{"parameters":{"binary_data_output":true},"inputs":[{"name":"INPUT0",'
    head += f'"shape":[{count}],"datatype":"FP32","data":['
    body = head.encode() + b"0.1," * (count - 1) + b"NaN]}]}"
    data = raw_request("POST", INFER, body, Connection="close")

    _ask_beside_others(server, data)


@pytest.mark.long(
    "frontends/http_api/inference/test_json_documents.py::test_an_array_that_is_written_in_pieces_is_whole"
)
@pytest.mark.parametrize("accepted", ["identity", "gzip"])
def test_others_are_answered_while_many_numbers_are_written(server: Server, accepted: str) -> None:
    count = 5_000_000
    numbers = np.random.default_rng(1).random(count, np.float32).tobytes()
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "INPUT0",
                    "shape": [count],
                    "datatype": "FP32",
                    "parameters": {"binary_data_size": len(numbers)},
                }
            ]
        }
    ).encode()
    data = raw_request(
        *("POST", INFER, head + numbers),
        Connection="close",
        Inference_Header_Content_Length=str(len(head)),
        Accept_Encoding=accepted,
    )

    _ask_beside_others(server, data)


def _ask_beside_others(server: Server, data: bytes) -> None:
    """It takes long, and meanwhile others need not wait."""
    # However quick the machine is: where the loop does the work, one of them waits for it, each
    # time. Where the machine does something else, some may wait for that once.
    assert any(_share_of_the_longest(server, data) < 1 / 2 for _ in range(4))


def _share_of_the_longest(server: Server, data: bytes) -> float:
    """Return how long one of the others had to wait, of the whole time."""
    with ExitStack() as stack:
        connection = connect(server, stack, data)
        began, longest_s = time.monotonic(), 0.0
        while not select.select([connection], [], [], 0)[0]:
            asked_at_s = time.monotonic()
            assert 200 == server.status("/v2/health/live")
            longest_s = max(longest_s, time.monotonic() - asked_at_s)
            time.sleep(0.01)
        whole_s = time.monotonic() - began
        assert connection.recv(12).startswith(b"HTTP/1.1 200")
    return longest_s / whole_s
