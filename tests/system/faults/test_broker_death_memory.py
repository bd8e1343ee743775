"""The broker dies amid large tensors: none of their memory is lost, and none is used too soon."""

from __future__ import annotations

import http.client
import threading
import time
from functools import partial

import numpy as np
import pytest
import tritonclient.http as http_client

from tests.support.clients import infer_inputs
from tests.support.scraping import sum_series
from tests.support.server import Server
from tests.support.waiting import eventually

MODEL = "identity_fp32"
PATH = f"/v2/models/{MODEL}/infer"
#: Empty segments go back after some seconds.
REST_S = 60.0


pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "broker/requests/test_recovery.py::test_owners_hear_who_still_reads_and_then_that_all_have_told",
        "floor/test_arena.py::test_what_went_out_before_is_free_when_all_have_told_and_nobody_has_it",
    ),
    pytest.mark.server(models=[MODEL], frontends=("metrics",), own=True),
]


def _kill_broker(server: Server) -> None:
    server.replace_only("broker")
    eventually(server.is_ready, 30, "the server is ready")


def _in_use(server: Server) -> float:
    """Leases, and bytes of all arenas."""
    names = ("zmqtriton_leased_blocks", "zmqtriton_shared_memory_bytes")
    return sum(sum_series(server, name) for name in names)


def _request(array: np.ndarray) -> tuple[bytes, dict[str, str]]:
    [entry] = infer_inputs(http_client, INPUT0=array)
    outputs = [http_client.InferRequestedOutput("OUTPUT0", binary_data=True)]
    body, length = http_client.InferenceServerClient.generate_request_body([entry], outputs)
    return body, {"Inference-Header-Content-Length": str(length)}


def _post(server: Server, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    try:
        connection.request("POST", PATH, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_all_blocks_are_free_after_brokers_have_died_under_load(server: Server) -> None:
    is_over = threading.Event()
    wrong: list[str] = []
    answered = [0]

    def ask(seed: int) -> None:
        array = np.random.default_rng(seed).random(300_000, dtype=np.float32)
        while not is_over.is_set():
            status, body = _post(server, *_request(array))
            if status != 200:
                wrong.extend([] if status == 503 else [f"{status}: {body!r}"])
                continue
            answered[0] += 1
            if not body.endswith(array.tobytes()):
                wrong.append("other bytes")

    def has_answers(count: int) -> bool:
        return answered[0] > count

    clients = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for client in clients:
        client.start()
    try:
        for _ in range(4):
            eventually(partial(has_answers, answered[0] + 5), 60, "answers")
            _kill_broker(server)
    finally:
        is_over.set()
        for client in clients:
            client.join()

    assert wrong == []
    eventually(lambda: not _in_use(server), REST_S, "everything free")


def test_what_a_client_still_reads_stays_as_it_is(server: Server) -> None:
    arrays = [np.full(8 << 20, i, np.float32) for i in range(2)]
    (slow, headers), (other, others_headers) = map(_request, arrays)
    reader = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    reader.request("POST", PATH, slow, headers)
    response = reader.getresponse()  # its head; the rest waits in the server

    _kill_broker(server)
    time.sleep(0.5)
    for _ in range(3):
        status, answer = _post(server, other, others_headers)
        assert (200, True) == (status, answer.endswith(arrays[1].tobytes()))

    assert response.read().endswith(arrays[0].tobytes())
    reader.close()
    eventually(lambda: not _in_use(server), REST_S, "everything free")
