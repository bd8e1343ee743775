"""The broker and the frontends die under load, and are replaced."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpcclient

from tests.faults import broker_death, frontend_death
from tests.faults.load import Load
from tests.support.failing import FailingCalls
from tests.support.journal import UNTIL_RELEASED, executions, release_execution
from tests.support.raw_http import raw_request, send_raw
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_floor.arena import INLINE_BYTES

pytestmark = pytest.mark.system


MODELS = ["journal", "tokens", "counting"]


def prepare(server: Server) -> None:
    broker_death.use_instances(server)


@pytest.fixture
def server(running: Server) -> Server:
    return broker_death.settle(running)


def test_a_killed_broker_costs_nothing_that_was_not_being_executed(server: Server) -> None:
    logged = len(server.log_text())
    stubs = server.stub_pids("journal")
    with broker_death.mixed_load(server) as loads:
        for _ in range(3):
            broker_death.kill_and_measure(server, loads)
            time.sleep(0.3)
    broker_death.check(server, broker_death.outcomes(loads), stubs, kills=3)
    eventually(lambda: "has died: killed by SIGKILL" in server.log_text()[logged:], 60)


@pytest.mark.parametrize(
    ("model", "output", "parameters"),
    [("tokens", "INDEX", {}), ("counting", "NUMBER", {"pause_ms": 1})],
    ids=["sent by a thread", "sent within execute"],
)
def test_streams_go_on_without_a_gap(
    server: Server, model: str, output: str, parameters: dict[str, int]
) -> None:
    count = 1200  # no more than what is kept for a reader, however long a new broker takes
    inputs = [_scalar("COUNT", count)]
    if model == "tokens":
        inputs.append(_scalar("DELAY_US", 1000))
    numbers: list[int] = []
    problems: list[object] = []
    is_over = threading.Event()

    def take(result: grpcclient.InferResult | None, error: object) -> None:
        if error is not None or result is None:
            problems.append(error)
            is_over.set()
            return
        if result.as_numpy(output) is not None:
            numbers.append(int(result.as_numpy(output)[0]))
        if result.get_response().parameters["triton_final_response"].bool_param:
            is_over.set()

    with grpcclient.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(take)
        client.async_stream_infer(
            model, inputs, parameters=parameters, enable_empty_final_response=True
        )
        eventually(lambda: len(numbers) > 50, 30, "the stream's begin")
        [broker] = server.pids()["broker"]
        os.kill(broker, signal.SIGKILL)
        assert is_over.wait(60), len(numbers)
        client.stop_stream()

    assert problems == []
    assert numbers == list(range(count))


def _scalar(name: str, value: int) -> grpcclient.InferInput:
    tensor = grpcclient.InferInput(name, [1], "INT32")
    tensor.set_data_from_numpy(np.array([value], np.int32))
    return tensor


#: Asks the model `journal` for what it is asked.
_ASKING = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self._ask(request) for request in requests]

    def _ask(self, request):
        asked = pb_utils.InferenceRequest(
            model_name="journal", requested_output_names=["ID"], inputs=request.inputs()
        )
        response = asked.exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        return pb_utils.InferenceResponse(output_tensors=response.output_tensors())
"""


@pytest.mark.long(
    "system/model_api/test_modes_steps.py::test_what_was_executed_once_is_not_begun_anew_after_the_broker_s_death"
)
def test_models_that_wait_for_other_models_get_their_answers(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", models=["journal"], frontends=())
    config = (server.repository / "journal" / "config.pbtxt").read_text()
    (server.repository / "asking" / "1").mkdir(parents=True)
    (server.repository / "asking" / "config.pbtxt").write_text(
        config.replace("count: 1", "count: 3")
    )
    (server.repository / "asking" / "1" / "model.py").write_text(_ASKING)
    with server:
        stubs = {model: server.stub_pids(model) for model in ("journal", "asking")}
        with Load(server.http_port, clients=5, milliseconds=10, model="asking") as load:
            for _ in range(3):
                broker_death.kill_and_measure(server, [load])
                time.sleep(0.3)
        assert {model: server.stub_pids(model) for model in stubs} == stubs
        assert broker_death.check_executed_once(server, load.outcomes) == []


def _ask(server: Server, own_id: str, milliseconds: int, model: str = "journal") -> int:
    tensors = [
        {"name": "ID", "datatype": "BYTES", "shape": [1, 1], "data": [own_id]},
        {"name": "MS", "datatype": "INT32", "shape": [1, 1], "data": [milliseconds]},
    ]
    return server.request_json(f"/v2/models/{model}/infer", {"inputs": tensors})[0]


def test_what_has_not_begun_goes_to_an_idle_instance_though_another_one_executes(
    server: Server,
) -> None:
    with ThreadPoolExecutor(16) as pool:
        held = [pool.submit(_ask, server, name, UNTIL_RELEASED) for name in ("long", "short")]
        eventually(lambda: len(executions(server.journal)) == 2, 30, "both instances execute")
        waiting = [pool.submit(_ask, server, f"waiting{n}", 1) for n in range(8)]
        time.sleep(0.2)  # on their way to the broker
        [broker] = server.pids()["broker"]

        os.kill(broker, signal.SIGKILL)
        release_execution(server.journal, "short")

        assert [200] * 8 == [future.result(30) for future in waiting]
        assert 200 == held[1].result(30)
        assert not held[0].done()
        assert 200 == _ask(server, "new", 1)
        release_execution(server.journal, "long")
        assert 200 == held[0].result(30)
        assert set(executions(server.journal).values()) == {1}


_LARGE_ANSWERS = """
import time
import grpc
import numpy as np
import psutil
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.02)
        with open("{executions}", "a") as file:
            for request in requests:
                name = pb_utils.get_input_tensor_by_name(request, "ID").as_numpy()[0]
                file.write(name.decode() + " ")
        values = pb_utils.Tensor("OUT", np.zeros({count}, np.float32))
        return [pb_utils.InferenceResponse([values]) for _ in requests]
"""
_LARGE_CONFIG = """
backend: "python"
input { name: "ID" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }
"""


def _ask_for_much(server: Server, name: str) -> int:
    document = {"inputs": [{"name": "ID", "datatype": "BYTES", "shape": [1], "data": [name]}]}
    body = json.dumps({**document, "parameters": {"binary_data_output": True}}).encode()
    data = raw_request("POST", "/v2/models/large/infer", body, Connection="close")
    return send_raw(server.http_port, data).statuses[0]


@pytest.mark.long(
    "broker/requests/test_recovery.py::test_an_answer_that_the_dead_broker_had_kept_back_is_lost_and_not_made_again"
)
def test_answers_that_a_frontend_leaves_unread_are_not_made_twice(tmp_path: Path) -> None:
    """Answers that the kernel does not take are lost with the broker; the stub still knows them."""
    executed, count = tmp_path / "executed", 60
    calls = FailingCalls(tmp_path)
    server = Server(
        tmp_path / "s",
        models=[],
        environment=calls.environment,
        options=["--http-workers=1"],
    )
    directory = server.repository / "large"
    (directory / "1").mkdir(parents=True)
    (directory / "config.pbtxt").write_text(_LARGE_CONFIG)
    code = _LARGE_ANSWERS.format(executions=executed, count=INLINE_BYTES // 4)
    (directory / "1" / "model.py").write_text(code)

    with server, ThreadPoolExecutor(count) as clients:
        answers = [clients.submit(_ask_for_much, server, f"http-{n}") for n in range(count)]
        eventually(executed.exists, 60, "the first execution")
        calls.fail(server.pids()["http"][-1], "recv", errno.EAGAIN, times=10**9)
        try:
            with grpcclient.InferenceServerClient(server.grpc_address) as other:
                name = grpcclient.InferInput("ID", [1], "BYTES")
                for number in range(20):  # by which the stub hears of its broker for long enough
                    name.set_data_from_numpy(np.array([f"grpc-{number}"], np.object_))
                    other.infer("large", [name])
                    time.sleep(0.05)
            os.kill(server.pids()["broker"][0], signal.SIGKILL)
        finally:
            assert calls.stop() > 0, "it has tried to read"
        statuses = Counter(answer.result() for answer in answers)

        assert {200, 503} >= set(statuses)
        times = Counter(executed.read_text().split())
        assert [] == [name for name, executions in times.items() if executions > 1]
        assert count + 20 == len(times)


def test_a_stopped_broker_is_replaced(server: Server) -> None:
    stubs = server.stub_pids("journal")
    with broker_death.mixed_load(server) as loads:
        broker_death.kill_and_measure(server, loads, signal.SIGSTOP)
    broker_death.check(server, broker_death.outcomes(loads), stubs, kills=1)


def test_a_stub_that_dies_with_the_broker_is_not_asked_again_for_what_it_had(
    server: Server,
) -> None:
    with broker_death.mixed_load(server) as loads:
        time.sleep(0.5)
        [broker] = server.pids()["broker"]
        stub = server.stub_pids("journal")[0]
        killed_ns = time.monotonic_ns()
        for pid in (stub, broker):
            os.kill(pid, signal.SIGKILL)

        def back() -> bool:
            answers = broker_death.outcomes(loads)
            return any(o.sent_ns > killed_ns and o.is_right for o in answers)

        eventually(back, 30, "answers")
        eventually(lambda: len(server.stub_pids("journal")) == 2, 30, "the stub")
        time.sleep(0.5)
    broker_death.check_executed_once(server, broker_death.outcomes(loads))


@pytest.mark.long(
    "supervisor/test_broker_deaths.py::test_brokers_that_come_up_and_die_at_once_never_end_the_server"
)
def test_many_brokers_that_die_at_once_cost_neither_the_server_nor_its_models(
    server: Server,
) -> None:
    stubs = server.stub_pids("journal")
    killed: set[int] = set()

    def kill_new_broker() -> bool:
        for broker in set(server.pids().get("broker", [])) - killed:
            with suppress(ProcessLookupError):
                os.kill(broker, signal.SIGKILL)
                killed.add(broker)
        return len(killed) >= 10

    eventually(kill_new_broker, 60, "ten brokers have died")

    eventually(server.is_ready, 60, "the server is ready again")
    assert stubs == server.stub_pids("journal")
    assert 200 == _ask(server, "after", 1)


@pytest.mark.parametrize(
    "choose", [frontend_death.http_worker_pid, frontend_death.http_arbiter_pid]
)
def test_a_killed_http_process_costs_its_connections(
    server: Server, choose: Callable[[Server], int]
) -> None:
    clients = 4
    with Load(server.http_port, clients=clients, milliseconds=frontend_death.EXECUTION_MS) as load:
        for _ in range(2):
            frontend_death.kill_http_and_measure(server, load, choose)
    # While nobody listens each new connection is refused, too.
    limit = 2 * clients if choose is frontend_death.http_worker_pid else len(load.outcomes)
    frontend_death.check(server, load.outcomes, limit)


def test_a_killed_grpc_process_is_replaced(server: Server) -> None:
    for _ in range(2):
        frontend_death.kill_grpc_and_measure(server)


def test_who_connects_while_a_process_is_replaced_is_served_by_the_next(server: Server) -> None:
    with ThreadPoolExecutor() as threads:
        pids = server.pids()
        [supervisor], [grpc_process], [metrics] = (
            pids[role] for role in ("supervisor", "grpc", "metrics")
        )
        os.kill(supervisor, signal.SIGSTOP)  # nothing is replaced until it goes on
        try:
            killed = [psutil.Process(pid) for pid in (grpc_process, metrics)]
            for process in killed:
                process.kill()
            eventually(lambda: all(p.status() == "zombie" for p in killed), 30, "their ends")
            waiting = [
                socket.create_connection(("127.0.0.1", port), 5)
                for port in (server.grpc_port, server.metrics_port)
            ]
            scraped = threads.submit(server.metrics_text)
            channel = grpc.insecure_channel(server.grpc_address)
            live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
            answering = live.future(b"", timeout=30)
        finally:
            os.kill(supervisor, signal.SIGCONT)

        assert answering.result() == b"\x08\x01"
        assert "nv_inference" in scraped.result(30)
        for connection in waiting:
            connection.close()
        channel.close()
