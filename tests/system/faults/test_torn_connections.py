"""Connections to the broker end, or carry strange bytes, while both processes live on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.faults import deaths
from tests.faults.mixed_clients import StreamClient
from tests.support.foreign_sockets import confuse, needs_pidfd_getfd, tear
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.system, needs_pidfd_getfd]

BREAK = pytest.mark.parametrize("break_off", [tear, confuse], ids=["torn", "strange bytes"])
Break = Callable[[int, int], int]


MODELS = ["journal", "tokens"]


def prepare(server: Server) -> None:
    deaths.use_instances(server)


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
                "system/faults/test_torn_connections.py::test_frontends_are_connected_again_and_no_request_is_lost",
                "supervisor/server_processes/test_lost_connections.py::test_the_broker_is_replaced_for_a_frontend_which_has_clients",
            ),
        ),
        pytest.param(
            "metrics",
            marks=pytest.mark.long(
                "system/faults/test_torn_connections.py::test_frontends_are_connected_again_and_no_request_is_lost"
            ),
        ),
    ],
)
def test_frontends_are_connected_again_and_no_request_is_lost(
    server: Server, break_off: Break, role: str
) -> None:
    [broker], stubs = server.pids()["broker"], server.stub_pids("journal")
    frontends = server.pids()[role]
    with deaths.mixed_load(server) as loads:
        eventually(lambda: all(len(load.answers) > 20 for load in loads), 30, "answers")

        assert sum(break_off(broker, pid) for pid in frontends)

        eventually(
            lambda: server.pids().get("broker", [broker]) not in ([], [broker]),
            30,
            "another broker",
        )
        counts = [len(load.answers) for load in loads]
        eventually(
            lambda: all(len(o.answers) > n + 20 for o, n in zip(loads, counts, strict=True)),
            30,
            "answers again",
        )
    failed = deaths.check_broker(server, loads, stubs, kills=1)

    assert frontends == server.pids()[role]
    assert failed <= 2


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
