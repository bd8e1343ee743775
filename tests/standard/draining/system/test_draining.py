"""Models, instances and servers that are drained while clients ask."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.faults.load import Answer
from tests.faults.stamps import MODEL, SteadyLoad, steer
from tests.support.journal import UNTIL_RELEASED, release_execution
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton.ctl.main import cli

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=[MODEL, "journal"]),
]
PER_SECOND = 50


def ctl(server: Server, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--server", f":{server.http_port}", *words])


@contextmanager
def held_request(server: Server, own_id: str) -> Iterator[list[int]]:
    """A request that is executed until the block ends, and its status in the end."""
    inputs = [
        {"name": "ID", "datatype": "BYTES", "shape": [1, 1], "data": [own_id]},
        {"name": "MS", "datatype": "INT32", "shape": [1, 1], "data": [UNTIL_RELEASED]},
    ]
    statuses: list[int] = []

    def ask() -> None:
        statuses.append(server.request_json("/v2/models/journal/infer", {"inputs": inputs})[0])

    asking = threading.Thread(target=ask)
    asking.start()
    eventually(lambda: server.request_json("/v2/models/journal/load")[1]["executing"] == 1, 60)
    try:
        yield statuses
    finally:
        release_execution(server.journal, own_id)
        asking.join(60)


@pytest.mark.row("L14")
def test_a_model_is_restarted_without_a_failed_request(server: Server) -> None:
    before = server.stub_pids(MODEL)

    with SteadyLoad(server.http_port, per_second=PER_SECOND) as asking:
        # clients that never look at its readiness: so it is not quiet when the time is over
        answer = steer(server, "drain", {"then": "restart", "within_s": 0.5})
        eventually(lambda: len(asking.answers) > PER_SECOND, 60)

    assert ("restarted", True) == (answer["state"], answer["is_late"])
    assert [] == asking.failed()
    eventually(lambda: set(before).isdisjoint(server.stub_pids(MODEL)), 60, "the old one's end")
    assert 200 == server.status(f"/v2/models/{MODEL}/ready")


def test_an_instance_is_started_anew_without_a_failed_request(server: Server) -> None:
    steer(server, "scale", {"count": 2})
    before = server.stub_pids(MODEL)

    with SteadyLoad(server.http_port, per_second=PER_SECOND) as asking:
        answer = steer(server, "drain", {"instance": f"{MODEL}_0_0", "then": "restart"})
        eventually(lambda: len(asking.answers) > PER_SECOND, 60)

    assert "restarted" == answer["state"]
    assert [] == asking.failed()
    eventually(lambda: len({*before} & {*server.stub_pids(MODEL)}) == 1, 60, "the other goes on")


@pytest.mark.row("L14")
def test_a_model_that_drains_is_not_ready_and_answers(server: Server) -> None:
    with held_request(server, "held") as statuses:
        steer(server, "drain", {"wait": False}, "journal")
        eventually(lambda: server.status("/v2/models/journal/ready") == 400, 60)

        assert 200 == server.status("/v2/health/ready"), "balancers of the server stay"
        assert "journal 1 UNAVAILABLE draining" in ctl(server, "models").stdout.replace("\t", " ")
        assert "draining" == server.request_json("/v2/models/journal/drain")[1]["state"]
        assert "journal draining nothing 1 " in ctl(server, "status").stdout.replace("\t", " ")
        release_execution(server.journal, "other")
        inputs = [
            {"name": "ID", "datatype": "BYTES", "shape": [1, 1], "data": ["other"]},
            {"name": "MS", "datatype": "INT32", "shape": [1, 1], "data": [0]},
        ]
        answers: list[int] = []
        late = threading.Thread(
            target=lambda: answers.append(
                server.request_json("/v2/models/journal/infer", {"inputs": inputs})[0]
            )
        )
        late.start()

    late.join(60)
    assert [200] == statuses == answers
    eventually(lambda: server.request_json("/v2/models/journal/drain")[1]["state"] == "drained", 60)
    done = ctl(server, "undrain", "journal")
    assert (0, "journal: serving\n") == (done.exit_code, done.stdout)
    assert 200 == server.status("/v2/models/journal/ready")


def test_the_operator_drains_and_unloads_a_model(server: Server) -> None:
    done = ctl(server, "drain", "journal", "--then", "unload", "--quiet", "0")

    assert (0, "journal: unloaded\n") == (done.exit_code, done.stdout)
    assert 400 == server.status("/v2/models/journal/ready")
    again = ctl(server, "drain", "journal")
    assert 1 == again.exit_code
    assert "model 'journal' is not loaded" in again.stderr
    assert "" == server.control_model("load", "journal")


@pytest.mark.row("--exit-drain-secs")
def test_a_signal_drains_before_it_stops(tmp_path: Path) -> None:
    # a busy machine may need longer than the drain takes to see it
    for drain_s in (2, 10, 30):
        failed = _failed_while_a_signal_drains(tmp_path / str(drain_s), drain_s)
        if not failed:
            break

    assert [] == failed


def _failed_while_a_signal_drains(directory: Path, drain_s: int) -> list[Answer]:
    options = [f"--exit-drain-secs={drain_s}"]
    server = Server(directory, models=[MODEL], options=options, frontends=())
    with server:
        assert server.process is not None
        with SteadyLoad(server.http_port, per_second=PER_SECOND) as asking:
            eventually(lambda: len(asking.answers) > 10, 60)
            server.process.send_signal(signal.SIGTERM)
            eventually(lambda: server.status("/v2/health/ready") == 400, 60)
            answered = len(asking.answers)
            eventually(lambda: len(asking.answers) > answered + 10, 60)
        assert 0 == server.process.wait(60)
    return asking.failed()
