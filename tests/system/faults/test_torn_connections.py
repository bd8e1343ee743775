"""Connections to the broker end, or carry strange bytes, while both processes live on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.faults import deaths
from tests.faults.load import Load
from tests.faults.mixed_clients import StreamClient
from tests.support.foreign_sockets import confuse, needs_pidfd_getfd, tear
from tests.support.server import Copy, Server
from tests.support.waiting import eventually

BREAK = pytest.mark.parametrize(
    "break_off",
    [
        pytest.param(
            tear,
            marks=pytest.mark.long(
                "system/faults/test_torn_connections.py::test_an_idle_stub_is_replaced",
                "system/faults/test_torn_connections.py::test_streams_past_the_broker_find_their_way_again",
            ),
        ),
        confuse,
    ],
    ids=["torn", "strange bytes"],
)
Break = Callable[[int, int], int]


pytestmark = [
    pytest.mark.system,
    needs_pidfd_getfd,
    pytest.mark.server(
        models=[Copy("journal", edit=("count: 1", f"count: {deaths.INSTANCES}")), "tokens"],
        own=True,
    ),
]


@pytest.fixture(scope="module")
def torn(running: Server) -> Iterator[Server]:
    yield running
    assert 0 == running.stop(20), "it ends in order"


@pytest.fixture
def server(torn: Server) -> Server:
    return deaths.settle(torn)


def state(server: Server) -> str:
    _, index = server.request_json("/v2/repository/index", {})
    return str({entry["name"]: entry.get("state") for entry in index}["journal"])


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


@BREAK
@pytest.mark.parametrize(
    "role",
    [
        "http",
        pytest.param(
            "grpc",
            marks=pytest.mark.long(
                "system/faults/test_torn_connections.py::test_a_frontend_is_replaced_and_the_broker_stays",
                "supervisor/server_processes/test_lost_connections.py::test_a_frontend_is_killed_and_replaced",
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

        eventually(lambda: not is_of(server, role, pid), 60, "the process is gone")
        eventually(lambda: has_successor(server, role, pid), 60, "another one")
        await_answers(loads)
    wrong = deaths.check_executed_once(server, deaths.answers_of(loads), 0)

    # its clients lose what they have asked of it; the others lose nothing
    assert role == "http" or [] == wrong
    assert [broker] == server.pids()["broker"]
    assert sorted(stubs) == sorted(server.stub_pids("journal"))
    assert f"the {role} process {pid} is killed: its connection" in server.log_text()[number:]


def is_of(server: Server, role: str, pid: int) -> bool:
    return pid in server.pids().get(role, [])


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
