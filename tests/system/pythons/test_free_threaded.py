"""Models on free-threaded Pythons: threads run in parallel there, and nothing of ours ends that."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from tests.stub import interpreters
from tests.support.clients import infer_inputs
from tests.support.scraping import sum_series
from tests.support.scripted import string_parameter
from tests.support.server import Server
from tests.support.waiting import eventually
from tests.system.model_api.test_instances_threads import (
    ask,
    ask_all,
    test_a_cancelled_request_is_seen_by_its_instance,
    test_a_death_ends_all_with_each_request_told_and_all_come_back,
    test_a_fork_of_an_instance_asks_that_instance,
    test_calls_of_other_models_from_an_instance_and_its_threads,
    test_instances_are_threads_of_one_process_with_one_object_each,
    test_metrics_of_the_import_and_of_each_instance_are_counted,
    test_scaling_starts_and_ends_threads_of_the_process,
    test_stacks_are_those_of_each_instance,
    test_what_an_instance_says_is_its_own,
    write_model,
)

pytestmark = pytest.mark.system

#: Tests of instances that are threads, once more.
__all__ = [
    "test_a_cancelled_request_is_seen_by_its_instance",
    "test_a_death_ends_all_with_each_request_told_and_all_come_back",
    "test_a_fork_of_an_instance_asks_that_instance",
    "test_calls_of_other_models_from_an_instance_and_its_threads",
    "test_instances_are_threads_of_one_process_with_one_object_each",
    "test_metrics_of_the_import_and_of_each_instance_are_counted",
    "test_scaling_starts_and_ends_threads_of_the_process",
    "test_stacks_are_those_of_each_instance",
    "test_what_an_instance_says_is_its_own",
]
KINDS = ("processes", "forks", "threads")
#: How often a thread that computes in pure Python has waited: with the lock, for each of its turns.
WAITS = (
    "[of := __import__('resource'), begun := of.getrusage(of.RUSAGE_THREAD).ru_nvcsw, "
    "sum(i * i for i in range(3_000_000)), of.getrusage(of.RUSAGE_THREAD).ru_nvcsw - begun][-1]"
)

#: Answers twice its input, by the way that the request names. Keeps inputs, which must not change.
CODE = """
import json, threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import triton_python_backend_utils as pb_utils

family = pb_utils.MetricFamily(name="served", description="", kind=pb_utils.MetricFamily.COUNTER)
served = family.Metric(labels={"model": "MODEL"})
made = {}

def make(name):
    made[name] = made.get(name, 0) + 1
    return made

class TritonPythonModel:
    def initialize(self, args):
        self.pool = ThreadPoolExecutor(3)
        self.kept = []

    def execute(self, requests):
        return [self.begin(request) for request in requests]

    def begin(self, request):
        way = json.loads(request.parameters())["way"]
        tensor = pb_utils.get_input_tensor_by_name(request, "IN")
        served.increment(1)
        pb_utils.shared(way, lambda: make(way))
        if way == "at once":
            return self.answer(tensor)
        if way == "by several threads":
            sums = list(self.pool.map(lambda _: tensor.as_numpy().sum(), range(3)))
            assert len(set(sums)) == 1, sums
            return self.answer(tensor)
        if way == "by another model":
            first, second = self.pool.map(self.ask, [tensor, tensor])
            assert (first.as_numpy() == second.as_numpy()).all()
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", first.as_numpy())])
        sender = request.get_response_sender()
        if way == "later":
            self.pool.submit(lambda: sender.send(self.answer(tensor), 1))
        else:
            self.pool.submit(lambda: [sender.is_cancelled() for _ in range(3)])

    def answer(self, tensor):
        array = tensor.as_numpy()
        self.kept.append((array, float(array[0])))
        if len(self.kept) > 8:
            kept, first = self.kept.pop(0)
            assert (kept == first).all(), (kept, first)
        served.increment(0)
        output = pb_utils.Tensor.empty("OUT", array.shape, array.dtype)
        np.multiply(array, 2, out=output.as_numpy())
        return pb_utils.InferenceResponse([output])

    def ask(self, tensor):
        response = pb_utils.InferenceRequest(
            model_name="asked", requested_output_names=["OUT"], inputs=[tensor],
            parameters={"way": "later"}).exec()
        return pb_utils.get_output_tensor_by_name(response, "OUT")

    def finalize(self):
        assert set(made.values()) == {1}, made
"""
CONFIG = """
backend: "python"
input { name: "IN" data_type: TYPE_FP32 dims: -1 }
output { name: "OUT" data_type: TYPE_FP32 dims: -1 }
instance_group { count: 4 kind: KIND_CPU }
"""
WAYS = ("at once", "by several threads", "by another model", "later", "never")
CLIENTS, REQUESTS = 6, 60


@pytest.fixture(scope="module", params=interpreters.FREE_THREADED)
def environment(request: pytest.FixtureRequest) -> str:
    """The parameter of models that run on such a Python."""
    python = interpreters.python_or_skip(request.param)
    return string_parameter("EXECUTION_ENV_PATH", str(Path(python).parents[1]))


@pytest.fixture(scope="module")
def server(environment: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("server") / "server"
    options = ["--model-control-mode=explicit", f"--runtime-directory={directory.parent}/run"]
    with Server(directory, options=options) as started:
        for kind in KINDS:
            write_model(started, kind, 3, string_parameter("INSTANCES", kind) + environment)
            assert started.control_model("load", kind) == ""
        yield started
        assert "global interpreter lock" not in started.log_text()


@pytest.fixture(scope="module")
def threads(server: Server) -> Server:
    return server


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_ours_switches_the_lock_on(server: Server, kind: str) -> None:
    assert {"False"} == {ask(server, kind, "sys._is_gil_enabled()") for _ in range(3)}


def test_instances_compute_in_pure_python_without_waiting_for_each_other(server: Server) -> None:
    waits = [int(text) for text in ask_all(server, "threads", WAITS, 2)]

    assert max(waits) < 10, waits


@pytest.mark.long("system/pythons/test_free_threaded.py::test_nothing_of_ours_switches_the_lock_on")
def test_what_threads_do_at_the_same_time_is_right(server: Server, environment: str) -> None:
    for name in ("asked", "strained"):
        config = CONFIG + string_parameter("INSTANCES", "threads") + environment
        server.write_model(name, config, CODE.replace("MODEL", name))
        assert server.control_model("load", name) == ""
    [pid] = server.stub_pids("strained")

    with ThreadPoolExecutor(CLIENTS) as pool:
        wrong = list(pool.map(lambda client: faults(server, client), range(CLIENTS)))

    assert [[]] * CLIENTS == wrong
    assert [pid] == server.stub_pids("strained")
    count = CLIENTS * REQUESTS
    eventually(lambda: sum_series(server, "served", model="strained") == count, 60)
    server.control_model("unload", "strained")
    eventually(lambda: not server.stub_pids("strained"), 60)
    assert "AssertionError" not in server.log_text()


def faults(server: Server, client: int) -> list[str]:
    """Return what was wrong of the answers to one client, each by another way than the last."""
    wrong = []
    with tritonclient.grpc.InferenceServerClient(server.grpc_address) as grpc:
        for number in range(client, client + REQUESTS):
            way, ones = WAYS[number % len(WAYS)], np.full(100_000, number, np.float32)
            try:
                answer = grpc.infer(
                    "strained",
                    infer_inputs(tritonclient.grpc, IN=ones),
                    parameters={"way": way},
                    client_timeout=120,
                )
                said = "right" if (answer.as_numpy("OUT") == 2 * ones).all() else "wrong"
            except InferenceServerException as error:
                said = str(error.message())
            if ("found type" if way == "never" else "right") not in said:
                wrong.append(f"{way}: {said}")
    return wrong
