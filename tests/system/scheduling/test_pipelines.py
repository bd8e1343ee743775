"""Ensembles and batches in real servers, asked by real clients."""

from __future__ import annotations

import concurrent.futures
import os
import queue
import signal
from functools import partial
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

from tests.support.clients import infer_inputs
from tests.support.journal import (
    UNTIL_RELEASED,
    has_seen_cancellation,
    read_journal,
    release_execution,
)
from tests.support.server import Server
from tests.support.waiting import eventually
from tests.system.shared_server import SharedServer

pytestmark = pytest.mark.system

ENSEMBLES = ["doubled", "relay", "fails_late", "streamed"]
FRONTENDS = ("grpc",)
MODELS = [
    *ENSEMBLES,
    "add_sub",
    "identity_fp32",
    "raising",
    "batch_size",
    "tokens",
    "string_upper",
]
PROTOCOLS = pytest.mark.parametrize("protocol", ["http", "grpc"])


def prepare(server: Server) -> None:
    # Its batches go when they are full, however late the last one comes.
    config = server.add_model("batch_size", "patient") / "config.pbtxt"
    config.write_text(config.read_text().replace("microseconds: 300000", "microseconds: 60000000"))


def infer(server: Server, protocol: str, model: str, **arrays: np.ndarray) -> Any:
    """The result, by tritonclient."""
    module: Any = http_client if protocol == "http" else grpc_client
    url = server.url.removeprefix("http://") if protocol == "http" else server.grpc_address
    with module.InferenceServerClient(url) as client:
        return client.infer(model, infer_inputs(module, **arrays))


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


def test_many_large_requests_at_once_each_get_their_own_answer(server: Server) -> None:
    arrays = [np.full(150_000, number, np.float32) for number in range(64)]
    results: queue.Queue[Any] = queue.Queue()
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        for number, array in enumerate(arrays):
            [tensor] = infer_inputs(grpc_client, X=array)
            answer = partial(_keep, results, number)
            client.async_infer("relay", [tensor], answer, request_id=str(number))
        got = [results.get(timeout=60) for _ in arrays]

    for number, result, error in got:
        assert error is None
        assert all(np.array_equal(arrays[number], result.as_numpy(name)) for name in "YZ")


def _keep(results: queue.Queue[Any], number: int, result: Any, error: Any) -> None:
    results.put((number, result, error))


@pytest.mark.row("E53")
def test_an_output_that_is_asked_for_alone_comes_alone(server: Server) -> None:
    before = server.statistics("identity_fp32")["inference_count"]
    with http_client.InferenceServerClient(server.url.removeprefix("http://")) as client:
        [tensor] = infer_inputs(http_client, X=np.ones(3, np.float32))
        result = client.infer("relay", [tensor], outputs=[http_client.InferRequestedOutput("Z")])

    assert ["Z"] == [output["name"] for output in result.get_response()["outputs"]]
    assert before + 2 == server.statistics("identity_fp32")["inference_count"]


@pytest.mark.row("E54")
@PROTOCOLS
def test_an_error_in_a_step_names_the_ensemble(server: Server, protocol: str) -> None:
    with pytest.raises(InferenceServerException) as error:
        infer(server, protocol, "fails_late", X=np.ones(1, np.float32))

    message = str(error.value.message())
    assert message.startswith("in ensemble 'fails_late', Failed to process the request(s)")
    assert "ValueError: on purpose" in message
    assert server.statistics("fails_late")["inference_stats"]["fail"]["count"] > 0


def test_statistics_count_the_ensemble_and_its_steps(server: Server) -> None:
    ones = np.ones((3, 16), np.float32)
    before = [server.statistics(model) for model in ("doubled", "add_sub")]

    infer(server, "http", "doubled", LEFT=ones, RIGHT=ones)

    after = [server.statistics(model) for model in ("doubled", "add_sub")]
    grown = [
        b["inference_count"] - a["inference_count"] for a, b in zip(before, after, strict=True)
    ]
    assert [3, 6] == grown
    counts = [
        b["inference_stats"]["success"]["count"] - a["inference_stats"]["success"]["count"]
        for a, b in zip(before, after, strict=True)
    ]
    assert [1, 2] == counts
    # As in Triton an ensemble counts with what its steps took.
    for name in ("queue", "compute_infer"):
        assert 1 == sum(
            sign * entry[0]["inference_stats"][name]["count"]
            for sign, entry in ((1, after), (-1, before))
        )


def test_what_an_ensemble_is_called_and_takes(server: Server) -> None:
    with http_client.InferenceServerClient(server.url.removeprefix("http://")) as client:
        metadata, config = client.get_model_metadata("doubled"), client.get_model_config("doubled")

    assert "ensemble" == metadata["platform"]
    assert {"name": "LEFT", "datatype": "FP32", "shape": [-1, 16]} == metadata["inputs"][0]
    steps = config["ensemble_scheduling"]["step"]
    assert ["add_sub", "add_sub"] == [step["model_name"] for step in steps]
    assert [] == server.stub_pids("doubled")


def test_a_request_that_does_not_fit_is_refused_before_any_step(server: Server) -> None:
    with pytest.raises(InferenceServerException, match="expected 2 inputs but got 1 inputs"):
        infer(server, "http", "doubled", LEFT=np.ones((1, 16), np.float32))


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


def _ask_twice_journal(server: Server, name: str, milliseconds: int) -> tuple[int, Any]:
    tensors = [
        {"name": "ID", "shape": [1, 1], "datatype": "BYTES", "data": [name]},
        {"name": "MS", "shape": [1, 1], "datatype": "INT32", "data": [milliseconds]},
    ]
    return server.request_json("/v2/models/twice_journal/infer", {"inputs": tensors})


def test_a_member_that_dies_fails_its_requests_and_the_ensemble_is_ready_with_it(
    shared: SharedServer,
) -> None:
    server = shared
    server.add_model("journal")
    hold = server.block_imports("journal")
    server.load("twice_journal")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answering = pool.submit(_ask_twice_journal, server, "a", 60_000)
        eventually(lambda: read_journal(server.journal), 30, "the first step begins")
        hold.touch()
        os.kill(server.stub_pids("journal")[0], signal.SIGKILL)
        status, answer = answering.result(timeout=30)
    ready = "/v2/models/twice_journal/ready"
    eventually(lambda: server.status(ready) == 400, 30, "not ready")
    hold.unlink()
    eventually(lambda: server.status(ready) == 200, 30, "ready")

    assert 503 == status
    assert "in ensemble 'twice_journal', Failed to process the request(s)" in answer["error"]
    assert "killed by SIGKILL" in answer["error"]
    assert 200 == _ask_twice_journal(server, "b", 1)[0]
    executed = [record.id for record in read_journal(server.journal) if record.event == "end"]
    assert ["b", "b"] == executed


def test_a_client_that_leaves_stops_the_ensemble_between_its_steps(shared: SharedServer) -> None:
    server = shared
    server.load("journal", "twice_journal")
    module: Any = grpc_client
    with module.InferenceServerClient(server.grpc_address) as client:
        [name] = infer_inputs(module, ID=np.array([[b"a"]], dtype=np.object_))
        [pause] = infer_inputs(module, MS=np.array([[UNTIL_RELEASED]], np.int32))
        call = client.async_infer("twice_journal", [name, pause], lambda result, error: None)
        eventually(lambda: read_journal(server.journal), 30, "the first step begins")
        call.cancel()

    eventually(lambda: has_seen_cancellation(server.journal, "a"), 30, "all know")
    release_execution(server.journal, "a")
    eventually(lambda: len(read_journal(server.journal)) == 2, 30, "the first step ends")
    assert 200 == _ask_twice_journal(server, "b", 1)[0]
    records = [(record.event, record.id) for record in read_journal(server.journal)]
    assert [("start", "a"), ("end", "a")] == records[:2]
    assert ["b"] * 4 == [name for _, name in records[2:]]


# -------------------------------------------------------------- explicit load


@pytest.mark.row("E52")
def test_an_explicit_load_of_an_ensemble_brings_its_members(shared: SharedServer) -> None:
    server = shared
    for model in ("doubled", "add_sub"):
        server.add_model(model)
    ready = ["/v2/models/doubled/ready", "/v2/models/add_sub/ready"]

    assert 200 == server.request_json("/v2/repository/models/doubled/load", {})[0]
    assert [200, 200] == [server.status(path) for path in ready]

    parameters = {"parameters": {"unload_dependents": True}}
    assert 200 == server.request_json("/v2/repository/models/doubled/unload", parameters)[0]
    assert [400, 400] == [server.status(path) for path in ready]


# ----------------------------------------------------------------- batching


def _batch(server: Server, model: str, *rows: int, columns: int = 4) -> list[tuple[int, int]]:
    """Requests of so many rows at once; (requests, rows) of the batch in which each was."""

    def ask(number: int) -> tuple[int, int]:
        data = [1.0] * number * columns
        tensor = {"name": "X", "shape": [number, columns], "datatype": "FP32", "data": data}
        status, answer = server.request_json(f"/v2/models/{model}/infer", {"inputs": [tensor]})
        assert 200 == status, answer
        outputs = {output["name"]: output["data"] for output in answer["outputs"]}
        assert number == len(outputs["ROWS"])
        return outputs["REQUESTS"][0], outputs["ROWS"][0]

    with concurrent.futures.ThreadPoolExecutor(len(rows)) as pool:
        return list(pool.map(ask, rows))


def test_requests_of_several_clients_are_executed_together(server: Server) -> None:
    before = server.statistics("patient")

    batches = _batch(server, "patient", *[1] * 8)

    assert [(8, 8)] * 8 == batches
    after = server.statistics("patient")
    assert before["execution_count"] + 1 == after["execution_count"]
    assert before["inference_count"] + 8 == after["inference_count"]
    assert 8 in [entry["batch_size"] for entry in after["batch_stats"]]
