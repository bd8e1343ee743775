"""The broker and the frontends die under load, or lose connections, and are replaced."""

from __future__ import annotations

import os
import signal
import socket
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpcclient

from tests.faults import deaths
from tests.faults.load import Load
from tests.faults.mixed_clients import StreamClient
from tests.support import scripted
from tests.support.clients import infer_inputs
from tests.support.foreign_sockets import confuse, needs_pidfd_getfd, tear
from tests.support.journal import UNTIL_RELEASED, ask_journal, executions, release_execution
from tests.support.server import Copy, Server
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            Copy("journal", edit=("count: 1", f"count: {deaths.INSTANCES}")),
            "tokens",
            "counting",
            *(Copy("scripted", name) for name in ("asking", "callee")),
        ],
        own=True,
    ),
]
#: No more than what is kept for a reader, however long a new broker takes.
COUNT = 1200


@pytest.fixture
def server(running: Server) -> Server:
    return deaths.settle(running)


def test_a_killed_broker_costs_nothing_that_was_not_being_executed(server: Server) -> None:
    logged = len(server.log_text())
    stubs = server.stub_pids("journal")
    with deaths.mixed_load(server) as loads:
        for number in (signal.SIGKILL, signal.SIGSTOP):
            deaths.kill_broker(server, loads, number)
    deaths.check_broker(server, loads, stubs, kills=2)
    eventually(lambda: "has died: killed by SIGKILL" in server.log_text()[logged:], 60)


@pytest.mark.parametrize(
    ("model", "output", "inputs", "parameters"),
    [
        ("tokens", "INDEX", {"COUNT": COUNT, "DELAY_US": 1000}, {}),
        pytest.param(
            *("counting", "NUMBER", {"COUNT": COUNT}, {"pause_ms": 1}),
            marks=pytest.mark.long(
                "system/faults/test_broker_death.py::test_streams_go_on_without_a_gap"
            ),
        ),
    ],
    ids=["sent by a thread", "sent within execute"],
)
def test_streams_go_on_without_a_gap(
    server: Server,
    model: str,
    output: str,
    inputs: dict[str, int],
    parameters: dict[str, int],
) -> None:
    # until a frontend hears a stub, responses come through the broker, and are lost with it; the
    # broker that an earlier test has killed may have had some of these
    eventually(
        lambda: ["right"] * 3 == [StreamClient(server, 0).request() for _ in range(3)],
        60,
        "streams",
    )
    arrays = {name: np.array([number], np.int32) for name, number in inputs.items()}
    numbers: list[int] = []
    problems: list[object] = []
    is_over = threading.Event()

    def take(result: grpcclient.InferResult | None, error: object) -> None:
        if error is not None or result is None:
            problems.append(str(error))
            is_over.set()
            return
        if result.as_numpy(output) is not None:
            numbers.append(int(result.as_numpy(output)[0]))
        if result.get_response().parameters["triton_final_response"].bool_param:
            is_over.set()

    with grpcclient.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(take)
        client.async_stream_infer(
            model,
            infer_inputs(grpcclient, **arrays),
            parameters=parameters,
            enable_empty_final_response=True,
        )
        eventually(lambda: len(numbers) > 50, 30, "the stream's begin")
        server.kill_only("broker")
        assert is_over.wait(60), len(numbers)
        client.stop_stream()

    assert problems == []
    assert numbers == list(range(COUNT))


_CALL = f"""
import os, threading

def call():
    script = {textwrap.dedent(scripted.GATE).strip()!r}
    return answer_of(ask("callee", script, text_of(request)).exec())
"""
#: Each waits without a look at anything of the server's.
WAYS = {
    "a thread": """
texts = []
thread = threading.Thread(target=lambda: texts.append(call()))
thread.start()
thread.join()
return [reply(texts[0])]
""",
    "a fork": """
reading, writing = os.pipe()
child = os.fork()
if not child:
    os.write(writing, call().encode())
    os._exit(0)
os.close(writing)
os.waitpid(child, 0)
return [reply(os.read(reading, 1000).decode())]
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_a_thread_or_a_fork_of_a_model_waits_for_is_answered(
    server: Server, tmp_path: Path, way: str
) -> None:
    with ThreadPoolExecutor() as threads:
        gate = tmp_path / "gate"
        answer = threads.submit(scripted.generate, server, "asking", _CALL + WAYS[way], str(gate))
        eventually(Path(f"{gate}.begun").exists, 60, "the call")

        server.kill_only("broker")
        gate.touch()

        assert "through" == answer.result(60)


def test_what_has_not_begun_goes_to_an_idle_instance_though_another_one_executes(
    server: Server,
) -> None:
    with ThreadPoolExecutor(16) as pool:
        held = [
            pool.submit(ask_journal, server, name, UNTIL_RELEASED) for name in ("long", "short")
        ]
        eventually(lambda: len(executions(server.journal)) == 2, 30, "both instances execute")
        waiting = [pool.submit(ask_journal, server, f"waiting{n}", 1) for n in range(8)]
        time.sleep(0.2)  # on their way to the broker

        server.kill_only("broker")
        release_execution(server.journal, "short")

        assert [200] * 8 == [future.result(30) for future in waiting]
        assert 200 == held[1].result(30)
        assert not held[0].done()
        assert 200 == ask_journal(server, "new", 1)
        release_execution(server.journal, "long")
        assert 200 == held[0].result(30)
        assert set(executions(server.journal).values()) == {1}


@pytest.mark.parametrize(
    "choose",
    [
        deaths.http_worker_pid,
        pytest.param(
            deaths.http_arbiter_pid,
            marks=pytest.mark.long(
                "system/faults/test_broker_death.py::test_a_killed_http_process_costs_its_connections"
            ),
        ),
    ],
)
def test_a_killed_http_process_costs_its_connections(
    server: Server, choose: Callable[[Server], int]
) -> None:
    clients = 4
    with Load(server.http_port, clients=clients, milliseconds=20) as load:
        deaths.kill_http(server, load, choose)
    # While nobody listens each new connection is refused, too.
    limit = clients if choose is deaths.http_worker_pid else len(load.answers)
    deaths.check_http(server, load, limit)


def test_a_killed_grpc_process_is_replaced(server: Server) -> None:
    deaths.kill_grpc(server)


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


# ------------------------------------------------------------------- torn connections
# Connections to the broker end, or carry strange bytes, while both processes live on.

BREAK = pytest.mark.parametrize(
    "break_off",
    [
        pytest.param(
            tear,
            marks=pytest.mark.long(
                "system/faults/test_broker_death.py::test_an_idle_stub_is_replaced",
                "system/faults/test_broker_death.py::test_streams_past_the_broker_find_their_way_again",
            ),
        ),
        confuse,
    ],
    ids=["torn", "strange bytes"],
)
Break = Callable[[int, int], int]


def state(server: Server) -> str:
    _, index = server.request_json("/v2/repository/index", {})
    return str({entry["name"]: entry.get("state") for entry in index}["journal"])


@needs_pidfd_getfd
@BREAK
def test_an_idle_stub_is_replaced(server: Server, break_off: Break) -> None:
    [broker], before = server.pids()["broker"], server.stub_pids("journal")
    logged = len(server.log_text())

    assert break_off(broker, before[0])

    eventually(lambda: before[0] not in server.stub_pids("journal"), 30, "the stub is gone")
    eventually(lambda: len(server.stub_pids("journal")) == 2, 30, "another one")
    eventually(lambda: state(server) == "READY", 30, "the model is ready")
    with deaths.mixed_load(server) as loads:
        eventually(lambda: all(len(load.answers) > 20 for load in loads), 30, "answers")
    assert [broker] == server.pids()["broker"]
    assert [] == [o for o in deaths.answers_of(loads) if not o.is_right]
    eventually(lambda: "its connection to the broker has ended" in server.log_text()[logged:], 60)


@needs_pidfd_getfd
@BREAK
@pytest.mark.parametrize(
    "role",
    [
        "http",
        pytest.param(
            "grpc",
            marks=pytest.mark.long(
                "system/faults/test_broker_death.py::test_a_frontend_is_replaced_and_the_broker_stays",
                "supervisor/server_processes/test_lost_connections.py::test_a_process_is_killed_and_replaced",
            ),
        ),
    ],
)
def test_a_frontend_is_replaced_and_the_broker_stays(
    server: Server, break_off: Break, role: str
) -> None:
    [broker], stubs = server.pids()["broker"], server.stub_pids("journal")
    pid = deaths.http_worker_pid(server) if role == "http" else server.pids()[role][0]
    number = len(server.log_text())
    with deaths.mixed_load(server) as loads:
        eventually(lambda: all(len(load.answers) > 20 for load in loads), 30, "answers")

        # of the process before, whose successor this is, there may be answers that are errors
        eventually(lambda: break_off(broker, pid), 30, "it is connected")

        eventually(lambda: pid not in server.pids().get(role, []), 60, "the process is gone")
        eventually(lambda: has_successor(server, role, pid), 60, "another one")
        await_answers(loads)
    wrong = deaths.check_executed_once(server, deaths.answers_of(loads), 0)

    # its clients lose what they have asked of it; the others lose nothing
    assert role == "http" or [] == wrong
    assert [broker] == server.pids()["broker"]
    assert sorted(stubs) == sorted(server.stub_pids("journal"))
    assert f"the {role} process {pid} is killed: its connection" in server.log_text()[number:]


def has_successor(server: Server, role: str, pid: int) -> bool:
    """Return True if the role has as many processes as before, and none of this number."""
    pids = server.pids().get(role, [])
    return len(pids) == (2 if role == "http" else 1) and pid not in pids


def await_answers(loads: list[Load]) -> None:
    """Wait until each load has more answers than now."""
    counts = [sum(answer.is_right for answer in load.answers) for load in loads]

    def has_more() -> bool:
        now = [sum(answer.is_right for answer in load.answers) for load in loads]
        return all(n > before + 20 for n, before in zip(now, counts, strict=True))

    eventually(has_more, 60, "answers again")


@needs_pidfd_getfd
@BREAK
def test_streams_past_the_broker_find_their_way_again(server: Server, break_off: Break) -> None:
    [stub], frontend = server.stub_pids("tokens"), server.pids()["grpc"][-1]
    streams = StreamClient(server, 0)
    eventually(lambda: streams.request() == "right", 30, "connections after another test's break")
    assert ["right"] * 3 == [streams.request() for _ in range(3)]

    assert break_off(stub, frontend)

    eventually(lambda: streams.request() == "right", 30, "a stream is whole")
    assert ["right"] * 3 == [streams.request() for _ in range(3)]
    assert [stub] == server.stub_pids("tokens")
    assert tear(stub, frontend) > 0, "they go straight again"
