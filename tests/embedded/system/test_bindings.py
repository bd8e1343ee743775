"""Models that a process binds and runs itself, on threads."""

from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from typing import Any

import numpy as np
import psutil
import pytest

import zmqtriton
from tests.support.server import ROOT
from tests.support.server import Server as StandAlone
from tests.support.waiting import eventually
from tests.system.shared_server import SharedServer
from zmqtriton.embedded.connection import Connection
from zmqtriton.embedded.guest import Hosting
from zmqtriton_floor.errors import InvalidArgument, Unavailable, ZmqTritonError
from zmqtriton_stub.api.inference import InferenceResponse
from zmqtriton_stub.api.tensor import Tensor

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("zmq_threads")]

CONFIG: dict[str, Any] = {
    "max_batch_size": 4,
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
}
DECOUPLED = {**CONFIG, "model_transaction_policy": {"decoupled": True}}
ONES = np.ones((1, 4), np.float32)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zmqtriton.Server]:
    """A server without models and repositories, which this process has started."""
    log = tmp_path_factory.mktemp("log") / "log.txt"
    with zmqtriton.Server([], model_control_mode="explicit", log_file=str(log)) as started:
        yield started


def hosting(server: zmqtriton.Server) -> Hosting:
    """Return what runs models in this process."""
    return server._guest.hosting  # what is left of an ended one is told by no public name


class Scale:
    """A model that multiplies."""

    factor: float = 2
    #: Of the threads that have executed.
    threads: set[int]
    ended: list[str]

    def __init_subclass__(cls) -> None:
        cls.threads, cls.ended = set(), []

    def initialize(self, arguments: dict[str, str]) -> None:
        self.name = arguments["model_instance_name"]

    def execute(self, requests: list[Any]) -> Any:
        self.threads.add(threading.get_ident())
        return [self.answer(request.inputs()[0].as_numpy()) for request in requests]

    def answer(self, array: Any) -> Any:
        return InferenceResponse([Tensor("OUT", array * self.factor)])

    def finalize(self) -> None:
        self.ended.append(self.name)


def scale(by: float = 2) -> Any:
    return type("Scaled", (Scale,), {"factor": by})


def ask(connection: Connection, model: str, array: Any = ONES, **options: Any) -> Any:
    (response,) = connection.model(model).infer(inputs={"IN": array}, **options)
    return response.outputs["OUT"]


def test_a_bound_model_runs_in_this_process(server: zmqtriton.Server) -> None:
    bound = scale(3)

    model = server.bind("here", bound, config=CONFIG)

    assert ask(server, "here").tolist() == [[3, 3, 3, 3]]
    assert model.is_ready()
    assert {"name": "here", "version": "1", "state": "READY"} in server.models()
    assert len(bound.threads) == 1
    assert threading.get_ident() not in bound.threads
    server.unload("here")
    eventually(lambda: bound.ended == ["here_0_0"], within_s=30)
    with pytest.raises(ZmqTritonError, match=r"no available versions|not found|not ready"):
        ask(server, "here")


def test_each_class_is_an_instance(server: zmqtriton.Server) -> None:
    both = threading.Barrier(2, timeout=30)

    def class_of(number: int) -> Any:
        def execute(self: Any, requests: list[Any]) -> list[Any]:
            both.wait()  # neither passes alone
            return [self.answer(np.full((1, 4), number, np.float32)) for _ in requests]

        return type("Meeting", (Scale,), {"execute": execute, "factor": 1})

    server.bind("several", [class_of(1), class_of(2)], config={**CONFIG, "max_batch_size": 1})
    answers: list[float] = []
    askers = [
        threading.Thread(target=lambda: answers.append(float(ask(server, "several")[0, 0])))
        for _ in range(2)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(60)

    assert sorted(answers) == [1, 2]
    server.unload("several")


@pytest.mark.row("J02")
def test_a_model_is_bound_anew_without_a_failed_request(server: zmqtriton.Server) -> None:
    server.bind("again", scale(0), config=CONFIG)
    answers: list[float] = []
    failures: list[Exception] = []
    is_over = threading.Event()

    def keep_asking() -> None:
        while not is_over.is_set():
            try:
                answers.append(float(ask(server, "again")[0, 0]))
            except ZmqTritonError as error:
                failures.append(error)

    asking = [threading.Thread(target=keep_asking) for _ in range(3)]
    for thread in asking:
        thread.start()
    for factor in range(1, 8):
        server.bind("again", scale(factor), config=CONFIG)
        enough = len(answers) + 6
        eventually(lambda enough=enough: len(answers) > enough, within_s=30)  # type: ignore[misc]
    is_over.set()
    for thread in asking:
        thread.join(60)

    assert failures == []
    assert set(answers) == {0, 1, 2, 3, 4, 5, 6, 7}
    server.unload("again")


def test_binding_again_leaves_no_descriptors_and_no_threads(server: zmqtriton.Server) -> None:
    def round_of_binding() -> None:
        server.bind("leaks", scale(2), config=CONFIG)
        assert ask(server, "leaks")[0, 0] == 2
        server.unload("leaks")
        eventually(lambda: not hosting(server).is_running, within_s=30)
        gc.collect()

    this = psutil.Process()
    for _ in range(3):
        round_of_binding()
    descriptors, threads = this.num_fds(), this.num_threads()
    for _ in range(8):
        round_of_binding()

    assert this.num_fds() <= descriptors + 2
    assert this.num_threads() <= threads


@pytest.mark.row("J07")
def test_a_decoupled_model_sends_what_it_likes(server: zmqtriton.Server) -> None:
    class Count(Scale):
        def execute(self, requests: list[Any]) -> None:
            for request in requests:
                sender = request.get_response_sender()
                for number in range(5):
                    sender.send(self.answer(np.full((1, 4), number, np.float32)))
                sender.send(flags=1)

    server.bind("count", Count, config=DECOUPLED)

    responses = server.model("count").infer(inputs={"IN": ONES})
    assert [r.outputs["OUT"][0, 0] for r in responses if r.outputs] == [0, 2, 4, 6, 8]
    server.unload("count")


def test_a_model_that_cannot_be_loaded_is_not_bound(server: zmqtriton.Server) -> None:
    class Broken(Scale):
        def initialize(self, arguments: dict[str, str]) -> None:
            raise RuntimeError("no weights")

    with pytest.raises(ZmqTritonError, match="no weights"):
        server.bind("broken", Broken, config=CONFIG)
    with pytest.raises(ZmqTritonError, match="data_type"):
        server.bind("broken", Scale, config={**CONFIG, "input": [{"name": "IN"}]})
    assert hosting(server).models == []


def test_a_model_whose_load_nobody_waited_for_is_unloaded_with_the_others(
    server: zmqtriton.Server,
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Late(Scale):
        def initialize(self, arguments: dict[str, str]) -> None:
            begun.set()
            go_on.wait(60)

    timeout_s = 0.1
    while not begun.is_set():  # a load that was interrupted before it was asked for never begins
        with pytest.raises(FutureTimeoutError):
            server.bind("late", Late, config=CONFIG, timeout_s=timeout_s)
        timeout_s *= 2
    go_on.set()
    eventually(lambda: server.model("late").is_ready(), within_s=30)

    server._unbind(60)  # as the end of the server does first

    assert not hosting(server).is_running
    assert hosting(server).models == []


def test_sys_exit_in_a_model_ends_neither_its_instance_nor_the_process(
    server: zmqtriton.Server,
) -> None:
    class Leave(Scale):
        def execute(self, requests: list[Any]) -> list[Any]:
            if requests[0].inputs()[0].as_numpy()[0, 0] < 0:
                sys.exit(3)
            return super().execute(requests)

        def answer(self, array: Any) -> Any:
            assert array[0, 0], "not today"
            return super().answer(array)

    server.bind("leave", Leave, config=CONFIG)

    with pytest.raises(ZmqTritonError, match="not today"):
        ask(server, "leave", 0 * ONES)
    with pytest.raises(ZmqTritonError):
        ask(server, "leave", -ONES)
    eventually(lambda: server.model("leave").is_ready(), within_s=30)
    assert ask(server, "leave")[0, 0] == 2
    server.unload("leave")


def test_a_model_that_hangs_is_left_and_another_thread_goes_on(server: zmqtriton.Server) -> None:
    let_go = threading.Event()

    class Hang(Scale):
        def execute(self, requests: list[Any]) -> list[Any]:
            if requests[0].inputs()[0].as_numpy()[0, 0] < 0:
                let_go.wait(60)
            return super().execute(requests)

    limit = {"parameters": {"max_execution_seconds": {"string_value": "1"}}}
    server.bind("hang", Hang, config={**CONFIG, **limit})

    with pytest.raises(ZmqTritonError, match="max_execution_seconds"):
        ask(server, "hang", -ONES)
    eventually(lambda: server.model("hang").is_ready(), within_s=30)
    assert ask(server, "hang")[0, 0] == 2
    let_go.set()
    # the thread that hung has ended
    eventually(lambda: len(hosting(server)._running) == 1, within_s=30)
    assert ask(server, "hang")[0, 0] == 2
    server.unload("hang")


def test_a_broker_that_dies_loses_nothing_that_has_not_begun(server: zmqtriton.Server) -> None:
    server.bind("survivor", scale(2), config=CONFIG)
    children = psutil.Process(server.pid).children()
    broker = next(c for c in children if "broker" in " ".join(c.cmdline()))
    answers: list[float] = []
    asker = threading.Thread(
        target=lambda: answers.extend(ask(server, "survivor")[0, 0] for _ in range(400))
    )
    asker.start()
    eventually(lambda: len(answers) > 50, within_s=30)
    broker.send_signal(signal.SIGKILL)
    asker.join(60)

    assert answers == [2] * 400
    server.unload("survivor")


# ------------------------------------------------- in a process of their own

GUEST = """
    import threading, time, numpy as np, zmqtriton
    from zmqtriton_stub.api.inference import InferenceResponse
    from zmqtriton_stub.api.tensor import Tensor

    executing = threading.Event()

    class Slow:
        def execute(self, requests):
            executing.set()
            print("executes", flush=True)
            time.sleep(float(requests[0].inputs()[0].as_numpy()[0, 0]))
            given = [request.inputs()[0].as_numpy() for request in requests]
            return [InferenceResponse([Tensor("OUT", 2 * array)]) for array in given]
"""


def _place(server: StandAlone) -> str:
    """Return the runtime directory of a server that others have started."""
    return f"{server.directory.parent}/run"


@contextmanager
def _binder(shared: StandAlone, ending: str) -> Iterator[subprocess.Popen[str]]:
    """Another process, which has bound `slow`; killed at the end."""
    code = textwrap.dedent(GUEST) + (
        f"c = zmqtriton.connect(path={_place(shared)!r})\nc.bind('slow', Slow, config={CONFIG!r})\n"
        f"print('bound', flush=True)\n{ending}"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "bound\n"
        try:
            yield process
        finally:
            process.kill()


def _post(shared: StandAlone, seconds: float) -> tuple[int, Any]:
    tensor = {"name": "IN", "datatype": "FP32", "shape": [1, 2], "data": [seconds, 1]}
    return shared.request_json("/v2/models/slow/infer", {"inputs": [tensor]})


def _ask_soon(shared: StandAlone, seconds: float) -> tuple[threading.Thread, list[Any]]:
    """A thread that asks, and the list that will have its result."""
    results: list[Any] = []
    asker = threading.Thread(target=lambda: results.append(_post(shared, seconds)))
    asker.start()
    return asker, results


@pytest.mark.row("J32")
def test_kill_9_of_the_binder_fails_its_requests_alone(shared: SharedServer) -> None:
    with _binder(shared, "time.sleep(600)") as binder:
        assert binder.stdout is not None
        assert _post(shared, 0)[0] == 200
        asker, results = _ask_soon(shared, 30)
        assert ["executes\n"] * 2 == [binder.stdout.readline() for _ in range(2)]
    asker.join(30)

    ((status, body),) = results
    assert status in (500, 503)
    assert "slow" in body["error"]
    with zmqtriton.connect(path=_place(shared)) as connection:
        reasons = eventually(
            lambda: [
                entry["reason"]
                for entry in connection.models()
                if ("slow", "UNAVAILABLE") == (entry["name"], entry["state"])
            ],
            within_s=30,
        )
    assert "has bound it" in reasons[0]
    assert _post(shared, 0)[0] in (400, 404, 503)
    with _binder(shared, "time.sleep(600)"):
        assert _post(shared, 0)[0] == 200


@pytest.mark.row("J32")
def test_a_binder_that_leaves_finishes_what_it_has(shared: SharedServer) -> None:
    ending = "executing.wait()\nc.close()"
    with _binder(shared, ending) as binder:
        asker, results = _ask_soon(shared, 1.5)

        assert binder.wait(60) == 0
        asker.join(30)

    assert results[0][0] == 200


def test_only_a_guest_binds(shared: SharedServer) -> None:
    from zmqtriton import control_client as client

    arguments = {"model": "x", "binding": 1, "parameters": {"config": json.dumps(CONFIG)}}
    with (
        client.ServerSelector(_place(shared)).connect() as caller,
        pytest.raises(InvalidArgument, match="takes part"),
    ):
        caller.call("load", arguments)


def test_a_bound_name_is_refused_after_the_connection_is_closed(shared: SharedServer) -> None:
    connection = zmqtriton.connect(path=_place(shared))
    connection.close()

    with pytest.raises(Unavailable):
        connection.bind("late", scale(2), config=CONFIG)


@pytest.mark.parametrize("processes", [False, True])
def test_a_bound_model_sees_the_command_line_of_its_program(
    server: zmqtriton.Server, processes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CountWords(Scale):
        def answer(self, array: Any) -> Any:
            return InferenceResponse([Tensor("OUT", np.full_like(array, len(sys.argv)))])

    monkeypatch.setattr(sys, "argv", ["program", "--first", "--second"])
    model = server.bind("words", CountWords, config=CONFIG, processes=processes)

    [response] = model.infer(inputs={"IN": ONES})

    assert 3 == response.outputs["OUT"][0, 0]
    server.unload("words")
