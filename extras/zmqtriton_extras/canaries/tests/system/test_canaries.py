"""Canaries from outside: what clients are answered while a version is tried, and after it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

from tests.faults.stamps import (
    BROKEN,
    MODEL,
    SteadyLoad,
    add_version,
    canary,
    try_and_end,
    versions_of,
    write_stamp,
)
from tests.support.scripted import add_model, generate
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_floor.routing import ALL, goes_to_trial
from zmqtriton_floor.wire import TrafficSplit

SEQUENCES = "sequences"
OPTIONS = ("--model-control-mode=explicit", "--load-model=*")
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=[MODEL, SEQUENCES], options=OPTIONS),
]


def prepare(server: Server) -> None:
    write_stamp(server, 1)


@pytest.fixture(autouse=True)
def no_canary_is_left(server: Server) -> Iterator[None]:
    yield
    status, state = server.request_json(f"/v2/models/{MODEL}/canary")
    if status == 200 and state["phase"] == "RUNNING":
        canary(server, "/abort", {})
    if status == 200:
        ends = ("ABORTED", "PROMOTED")
        eventually(lambda: canary(server)["phase"] in ends, 30, "its end")


def ask_http(server: Server, version: str = "", **headers: str) -> int:
    """Return the version that has answered."""
    with http_client.InferenceServerClient(server.url.removeprefix("http://")) as client:
        tensor = http_client.InferInput("ID", [1, 1], "INT32")
        tensor.set_data_from_numpy(np.ones((1, 1), np.int32))
        answer = client.infer(MODEL, [tensor], version, headers=headers)
    return int(answer.get_response()["model_version"])


def ask_grpc(server: Server, version: str = "", **headers: str) -> int:
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        tensor = grpc_client.InferInput("ID", [1, 1], "INT32")
        tensor.set_data_from_numpy(np.ones((1, 1), np.int32))
        answer = client.infer(MODEL, [tensor], version, headers=headers)
    return int(answer.get_response().model_version)


def ctl(server: Server, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "zmqtriton.ctl.main", "--server", f":{server.http_port}"]
    done = subprocess.run(
        [*command, "canary", *words], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr


def serving(server: Server, model: str = MODEL) -> list[int]:
    _, entries = server.request_json("/v2/repository/index", {"ready": True})
    return [int(entry["version"]) for entry in entries if entry["name"] == model]


@pytest.mark.row("L16")
@pytest.mark.smoke
def test_versions_are_promoted_and_aborted_without_a_failed_request(server: Server) -> None:
    with SteadyLoad(server.http_port, per_second=100) as load:
        aborted = try_and_end(server, load, "abort")
        promoted = try_and_end(server, load, "promote", header="X-Try")

    assert load.failed() == []
    assert aborted != promoted
    eventually(lambda: serving(server) == [promoted], 30, "the old version's end")
    assert canary(server)["phase"] == "PROMOTED"


@pytest.mark.long(
    "extras/canaries/test_registry.py::test_a_canary_that_fails_more_often_is_aborted_with_the_reason"
)
@pytest.mark.row("L16")
def test_a_version_that_fails_is_aborted_by_itself(server: Server) -> None:
    (stable,) = serving(server)
    broken = add_version(server, begins_with=BROKEN)

    with SteadyLoad(server.http_port, per_second=100) as load:
        canary(server, document={"version": broken, "weight": 20, "min_requests": 10})
        eventually(lambda: canary(server)["phase"] == "ABORTED", 30, "the end of the canary")
        count = len(load.answers)
        eventually(lambda: len(load.answers) > count + 20, 30, "more answers")

    failed = load.failed()
    assert failed
    assert {500} == {answer.status for answer in failed}
    assert all("broken on purpose" in answer.text for answer in failed)
    assert all(answer.status == 200 for answer in load.answers[count + 10 :])
    state = canary(server)
    assert state["is_automatic"]
    assert "requests failed, 100.0 % against 0.0 % of the stable version" in state["reason"]
    assert [stable] == serving(server)
    eventually(lambda: state["reason"] in server.log_text(), 60)
    name = f'zmqtriton_canary_ends_total{{model="{MODEL}",result="aborted"}}'
    assert name in server.metrics_text()


@pytest.mark.row("L16")
def test_a_header_chooses_the_canary_over_http_and_grpc(server: Server) -> None:
    (stable,) = serving(server)
    tried = add_version(server)
    status, text = ctl(server, "start", MODEL, str(tried), "--header", "X-Try: 1")
    assert status == 0, text

    for ask in (ask_http, ask_grpc):
        assert stable == ask(server)
        assert tried == ask(server, **{"x-try": "1"})
        assert stable == ask(server, **{"x-try": "0"})
        assert (stable, tried) == (ask(server, str(stable)), ask(server, str(tried)))

    canary(server, document={"weight": "100%"})
    assert tried == ask_http(server) == ask_grpc(server)
    assert f'zmqtriton_canary_weight{{model="{MODEL}",version="{tried}"}} 100' in (
        server.metrics_text()
    )
    canary(server, "/abort", {})
    assert stable == ask_http(server)
    assert f"{MODEL}: aborted: an operator has aborted it" in ctl(server, "status")[1]


@pytest.mark.row("L16")
def test_copies_are_compared_and_clients_hear_of_none(server: Server) -> None:
    (stable,) = serving(server)
    tried = add_version(server)
    canary(server, document={"version": tried, "shadow": "100%"})

    assert {stable} == {ask(server) for ask in (ask_http, ask_grpc) for _ in range(10)}

    eventually(lambda: canary(server)["comparisons"]["different"] == 20, 30, "20 comparisons")
    comparisons = canary(server)["comparisons"]
    assert (
        "output 'IMPORTED' differs in 1 of 1 elements, by up to" in comparisons["differences"][-1]
    )
    assert 0 == comparisons["equal"] == comparisons["failed"]
    canary(server, document={"tolerance": 100})
    assert stable == ask_http(server)
    eventually(lambda: canary(server)["comparisons"]["equal"] == 1, 30, "an equal one")
    labels = f'model="{MODEL}",result="different",version="{tried}"'
    assert f"zmqtriton_canary_comparisons_total{{{labels}}} 20" in server.metrics_text()


#: Asks the model for as many answers as its argument says.
ASKS = f"""
    for _ in range(int(text_of(request))):
        ones = pb_utils.Tensor("ID", np.ones((1, 1), np.int32))
        asked = pb_utils.InferenceRequest(
            model_name={MODEL!r}, inputs=[ones], requested_output_names=["IMPORTED"]
        )
        assert not asked.exec().has_error()
    return [reply("asked")]
"""


@pytest.mark.long(
    "extras/canaries/test_comparisons.py::test_requests_of_models_are_skipped_ones_whatever_becomes_of_the_broker",
    "extras/canaries/requests/test_shadows.py::test_32_copies_are_under_way_at_most_and_others_skipped",
)
@pytest.mark.row("L16")
def test_requests_that_are_not_copied_count_as_skipped(server: Server) -> None:
    add_model(server, "scripted", "asker")
    assert server.control_model("load", "asker") == ""
    tried = add_version(server)
    canary(server, document={"version": tried, "shadow": "100%"})

    assert generate(server, "asker", ASKS, "20") == "asked"
    tensor = {"name": "ID", "datatype": "INT32", "shape": [1, 1], "data": [1]}
    body = json.dumps({"inputs": [tensor]}).encode()
    for _ in range(3):
        stream = urllib.request.urlopen(f"{server.url}/v2/models/{MODEL}/infer_stream", body)
        assert b"IMPORTED" in stream.read()

    eventually(lambda: canary(server)["comparisons"]["skipped"] == 23, 30, "all are counted")
    comparisons = canary(server)["comparisons"]
    assert (comparisons["uncopied"], comparisons["equal"] + comparisons["different"]) == (20, 0)
    shown = "23 skipped (20 were asked by models, which are not copied)"
    assert shown in ctl(server, "status")[1]
    labels = f'model="{MODEL}",result="skipped",version="{tried}"'
    assert f"zmqtriton_canary_comparisons_total{{{labels}}} 23" in server.metrics_text()
    assert f"version {tried} is not tried: none of 23 requests was copied" in explained(server)


def explained(server: Server) -> str:
    """Return what explain says of the model."""
    command = [sys.executable, "-m", "zmqtriton.ctl.main", "--server", f":{server.http_port}"]
    done = subprocess.run([*command, "explain", MODEL], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.long(
    "extras/canaries/test_registry.py::test_a_canary_that_hangs_is_aborted_before_a_request_of_it_has_ended",
    "extras/canaries/test_registry.py::test_what_an_aborted_version_does_not_end_is_ended",
)
def test_a_version_that_hangs_is_aborted_and_ends_though_a_client_waits(server: Server) -> None:
    (stable,) = serving(server)
    hanging = add_version(server, begins_with="        import time; time.sleep(3600)\n")
    limits = {"abort_hang": "1s", "abort_within": "1s", "min_requests": 1}
    canary(server, document={"version": hanging, "header": "X-Try", **limits})
    assert stable == ask_http(server)

    with pytest.raises(InferenceServerException, match="was aborted, and has not ended in 1 s"):
        ask_http(server, **{"x-try": "1"})

    eventually(lambda: canary(server)["phase"] == "ABORTED", 30, "the end of the canary")
    assert "1 of 1 requests failed (1 hanging), 100.0 %" in canary(server)["reason"]
    assert stable == ask_http(server)
    assert [stable] == serving(server)
    said = explained(server)
    assert f"the trial of version {hanging} was aborted" in said
    assert f"version {stable} gets all requests" in said
    assert [words for words in ("not ready", "hangs or", "failed, the last") if words in said] == []


@pytest.mark.long(
    "extras/canaries/test_registry.py::test_an_aborted_version_is_left_out_until_its_files_change"
)
def test_a_later_server_leaves_an_aborted_version_out(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", [MODEL], options=OPTIONS, frontends=())
    write_stamp(server, 1)
    with server:
        tried = add_version(server)
        canary(server, document={"version": tried, "weight": 10})
        canary(server, "/abort", {})
        eventually(lambda: canary(server)["phase"] == "ABORTED", 30, "the end of the canary")

    server.process = None
    with server:
        assert serving(server) == [1]
        text = f"version {tried} of model '{MODEL}' is left out until its files change"
        assert text in server.log_text()


@pytest.mark.long(
    "extras/canaries/requests/test_division.py::test_a_client_that_names_itself_keeps_its_version"
)
def test_a_user_stays_with_a_version_over_http_and_grpc(server: Server) -> None:
    (stable,) = serving(server)
    tried = add_version(server)
    status, text = ctl(server, "start", MODEL, str(tried), "--weight", "50", "--sticky", "X-User")
    assert status == 0, text
    assert f"{MODEL}: requests with the same 'x-user' get the same version" in text

    versions = {}
    for user in "abcdefghij":
        answers = {ask(server, **{"x-user": user}) for ask in (ask_http, ask_grpc, ask_http)}
        (versions[user],) = answers

    assert {stable, tried} == set(versions.values())


def add_to_sequence(server: Server, sequence: int, value: int, **flags: Any) -> int:
    """Return the sum."""
    document = {
        "parameters": {"sequence_id": sequence, **flags},
        "inputs": [{"name": "VALUE", "datatype": "INT32", "shape": [1, 1], "data": [value]}],
    }
    request = urllib.request.Request(
        f"{server.url}/v2/models/{SEQUENCES}/infer", json.dumps(document).encode()
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer_document = json.load(answer)
    return answer_document["outputs"][0]["data"][0]


@pytest.mark.long(
    "extras/canaries/requests/test_division.py::test_all_requests_of_a_sequence_go_one_way",
    "extras/canaries/test_registry.py::test_open_sequences_of_an_aborted_version_go_on",
)
@pytest.mark.row("L16")
def test_sequences_stay_with_their_version_through_changes_and_the_end(server: Server) -> None:
    tried = add_version(server, model=SEQUENCES)
    split = TrafficSplit(SEQUENCES, 1, tried, ALL // 2)
    stable = [number for number in range(1, 50) if not goes_to_trial(split, number)][:2]
    moved = [number for number in range(1, 50) if goes_to_trial(split, number)][:2]
    sequences = [*stable, *moved]
    canary(server, document={"version": tried, "weight": 50}, model=SEQUENCES)
    for sequence in sequences:
        assert add_to_sequence(server, sequence, 1, sequence_start=True) == 1

    canary(server, document={"weight": 100}, model=SEQUENCES)
    assert {3} == {add_to_sequence(server, sequence, 2) for sequence in sequences}
    canary(server, document={"weight": 0}, model=SEQUENCES)
    assert {6} == {add_to_sequence(server, sequence, 3) for sequence in sequences}
    assert [
        server.statistics(SEQUENCES, str(version))["inference_stats"]["success"]["count"]
        for version in (1, tried)
    ] == [6, 6]

    canary(server, "/promote", {}, model=SEQUENCES)
    assert {10} == {
        add_to_sequence(server, sequence, 4, sequence_end=True) for sequence in sequences
    }
    eventually(lambda: serving(server, SEQUENCES) == [tried], 30, "the end of the old version")


@pytest.mark.long("extras/canaries/test_registry.py::test_new_brokers_and_frontends_are_told")
@pytest.mark.row("L16")
def test_a_canary_outlives_the_broker_and_the_frontends(server: Server) -> None:
    (stable,) = serving(server)
    tried = add_version(server)
    canary(server, document={"version": tried, "header": "X-Try"})

    for role in ("broker", "grpc"):
        (pid,) = server.pids()[role]
        os.kill(pid, signal.SIGKILL)
        eventually(partial(_is_replaced, server, role, pid), 30, f"a new {role}")
        eventually(lambda: server.status("/v2/health/ready") == 200, 30, "readiness")
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        eventually(lambda: _is_live(client), 30, "a gRPC server")

    assert (stable, tried) == (ask_grpc(server), ask_grpc(server, **{"x-try": "1"}))
    assert (stable, tried) == (ask_http(server), ask_http(server, **{"x-try": "1"}))


def _is_live(client: grpc_client.InferenceServerClient) -> bool:
    with suppress(InferenceServerException):
        return bool(client.is_server_live())
    return False


def _is_replaced(server: Server, role: str, pid: int) -> bool:
    return server.pids().get(role, [pid]) != [pid]


@pytest.mark.row("L16")
def test_what_cannot_be_is_refused_with_the_reason(server: Server) -> None:
    def refused(document: Any) -> tuple[int, str]:
        status, answer = server.request_json(f"/v2/models/{MODEL}/canary", document)
        return status, answer["error"]

    (stable,) = serving(server)
    assert refused({"version": 999, "weight": 10})[0] == 400
    assert (refused({"version": 999})) == (
        400,
        "a canary needs a 'weight', a 'header' or a 'shadow', or gets nothing",
    )
    assert refused({"weight": 10})[0] == 404
    with SteadyLoad(server.http_port, per_second=50) as load:
        assert refused({"version": 999, "weight": 10})[0] == 400
        eventually(lambda: len(load.answers) > 10, 30, "answers")
    assert load.failed() == []
    assert {stable} == versions_of(load) == set(serving(server))
