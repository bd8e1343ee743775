"""Requests load the models that they are for, and models go when nobody uses them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from tests.support.server import Copy, Server
from tests.support.waiting import eventually

_SIXTEEN = {"datatype": "FP32", "shape": [1, 16], "data": [[1.0] * 16]}
_TWO = {"inputs": [{"name": name, **_SIXTEEN} for name in ("INPUT0", "INPUT1")]}
_OPTIONS = (
    "--model-control-mode=explicit",
    "--load-on-demand",
    "--unload-idle-after=1.5",
    "--load-on-demand-timeout=30",
)


pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            "add_sub",
            "bls_sync",
            "tokens",
            Copy("add_sub", "broken", code="raise RuntimeError('no weights here')\n"),
        ],
        options=_OPTIONS,
        frontends=("grpc",),
    ),
]


def _index(server: Server) -> dict[str, tuple[str, str]]:
    _, entries = server.request_json("/v2/repository/index", {})
    return {e["name"]: (e.get("state", ""), e.get("reason", "")) for e in entries}


def _is_gone(server: Server, *models: str) -> bool:
    index = _index(server)
    return all(index[m][0] == "UNAVAILABLE" and not server.stub_pids(m) for m in models)


def _gone(server: Server, *models: str) -> None:
    eventually(lambda: _is_gone(server, *models), 30, f"{models} were idle")


def _loads(server: Server, model: str) -> int:
    return server.log_text().count(f"loading '{model}', which is asked for")


@pytest.mark.row("L07")
def test_many_requests_that_come_together_are_answered_after_one_load(server: Server) -> None:
    _gone(server, "add_sub")
    before = _loads(server, "add_sub")

    with ThreadPoolExecutor(12) as threads:
        answers = [
            threads.submit(server.request_json, "/v2/models/add_sub/infer", _TWO) for _ in range(12)
        ]
        statuses = [future.result()[0] for future in answers]

    assert [200] * 12 == statuses
    assert before + 1 == _loads(server, "add_sub")


def test_what_nobody_asked_for_waits_and_the_server_is_ready(server: Server) -> None:
    _gone(server, "tokens")

    assert 400 == server.status("/v2/models/tokens/ready")
    assert 200 == server.status("/v2/health/ready")
    assert not server.stub_pids("tokens")
    state, reason = _index(server)["tokens"]
    assert ("UNAVAILABLE", True) == (state, reason.startswith("not loaded: "))
    assert 400 == server.request_json("/v2/models/nobody/infer", _TWO)[0]


def test_a_request_over_grpc_and_one_on_a_stream_have_their_models_loaded(server: Server) -> None:
    _gone(server, "add_sub", "tokens")
    inputs = []
    for name in ("INPUT0", "INPUT1"):
        tensor = grpcclient.InferInput(name, [1, 16], "FP32")
        tensor.set_data_from_numpy(np.ones((1, 16), np.float32))
        inputs.append(tensor)
    with grpcclient.InferenceServerClient(server.grpc_address) as client:
        sums = client.infer("add_sub", inputs).as_numpy("OUTPUT0")
        responses: Queue[Any] = Queue()
        client.start_stream(lambda result, error: responses.put(error or result))
        for number in ("1", "2"):
            client.async_stream_infer("add_sub", inputs, request_id=number)
        ids = [responses.get(timeout=60).get_response().id for _ in range(2)]
        client.stop_stream()
        metadata = client.get_model_metadata("tokens")

    assert [2.0] * 16 == sums[0].tolist()
    assert ["1", "2"] == ids
    assert "tokens" == metadata.name


@pytest.mark.row("L07")
def test_a_model_that_is_asked_by_another_is_loaded_and_stays_while_it_is_used(
    server: Server,
) -> None:
    _gone(server, "add_sub", "bls_sync")
    before = _loads(server, "add_sub")

    for _ in range(3):
        status, answer = server.request_json("/v2/models/bls_sync/infer", _TWO)
        assert (200, [2.0] * 16) == (status, answer["outputs"][0]["data"])

    assert before + 1 == _loads(server, "add_sub")


def test_a_load_that_fails_says_why_and_leaves_the_server_ready(server: Server) -> None:
    status, answer = server.request_json("/v2/models/broken/infer", _TWO)

    assert (503, True) == (status, "no weights here" in answer["error"])
    assert "no weights here" in server.request_json("/v2/models/broken/infer", _TWO)[1]["error"]
    assert 200 == server.status("/v2/health/ready")
    assert 1 == _loads(server, "broken")


@pytest.mark.long(
    "standard/on_demand/system/test_on_demand.py::test_many_requests_that_come_together_are_answered_after_one_load"
)
def test_requests_never_fail_while_their_model_comes_and_goes(server: Server) -> None:
    """Each is meant for the moment at which the model is idle for long enough."""

    def unloads() -> int:
        return server.log_text().count("unloading 'add_sub'")

    statuses = []
    for _ in range(2):
        server.request_json("/v2/models/add_sub/infer", _TWO)
        seen = unloads()
        eventually(lambda seen=seen: unloads() > seen, 30, "it is idle")  # type: ignore[misc]
        statuses += [server.request_json("/v2/models/add_sub/infer", _TWO)[0] for _ in range(5)]

    assert [200] * 10 == statuses
