"""Models that are steered while they serve."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.stamps import MODEL, control_model, roll_often, steer
from tests.standard.ctl.system.commands import ctl
from tests.support.journal import ask_journal
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=[MODEL, "journal"]),
]


@pytest.mark.row("L06")
def test_the_operator_scales_a_model(server: Server) -> None:
    done = ctl(server, "scale", MODEL, "3")

    assert (0, f"scaled {MODEL}:1: 3 of 3 instances ready\n") == (done.exit_code, done.stdout)
    eventually(lambda: len(server.stub_pids(MODEL)) == 3, 30, "three instances")
    steer(server, "scale", {"count": 1})
    eventually(lambda: len(server.stub_pids(MODEL)) == 1, 30, "one instance")
    assert ((200, ""), 1) == (control_model(server, "load"), len(server.stub_pids(MODEL)))


@pytest.mark.row("L15")
def test_code_is_rolled_out_without_a_failed_request(server: Server) -> None:
    steer(server, "scale", {"count": 2})
    counted = server.statistics(MODEL)["execution_count"]

    asking = roll_often(server, 6, broken_times=2, pause_s=0.05)

    assert [] == asking.failed()
    assert len(asking.answers) > 30
    counts = server.statistics(MODEL)
    assert counts["execution_count"] > counted, "they are of one loading, before and after"
    assert 0 == counts["inference_stats"]["fail"]["count"]


AUTOSCALE = """
parameters { key: "autoscale_max_instances" value { string_value: "3" } }
parameters { key: "autoscale_queue_milliseconds" value { string_value: "10" } }
parameters { key: "autoscale_down_after_seconds" value { string_value: "1" } }
"""


@pytest.mark.row("L06")
def test_instances_follow_the_load(server: Server) -> None:
    config = server.repository / "journal" / "config.pbtxt"
    config.write_text(config.read_text() + AUTOSCALE)
    assert (200, "") == control_model(server, "load", "journal")

    with ThreadPoolExecutor(8) as clients:
        while len(server.stub_pids("journal")) < 3:
            requests = [clients.submit(ask_journal, server, "a", 20) for _ in range(40)]
            assert {200} == {each.result() for each in requests}

    eventually(lambda: len(server.stub_pids("journal")) == 1, 30, "one instance again")
    _, state = server.request_json("/v2/models/journal/scale")
    assert {"instances": 1, "ready": 1} == state["versions"]["1"]
    assert "were enough for 1 s" in state["autoscale"]["last_change"]
    eventually(lambda: "autoscaling 'journal' to" in server.log_text(), 60)
