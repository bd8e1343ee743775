"""Mode poll: the repository rules, and half a copy, a broken model or a deletion harms no other."""

from __future__ import annotations

import pytest

from tests.faults.stamps import (
    MODEL,
    SteadyLoad,
    index_entry,
    model_file,
    write_stamp,
)
from tests.support.server import Server
from tests.support.waiting import eventually

POLLS = "Polling model repository"


pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=(MODEL,),
        options=("--model-control-mode=poll", "--repository-poll-secs=1", "--log-verbose=1"),
        frontends=(),
    ),
]


def _stamp(asking: SteadyLoad) -> int:
    return asking.answers[-1].stamps[0] if asking.answers else -1


@pytest.mark.row("F02", "--model-control-mode", "--repository-poll-secs")
def test_changes_are_served_without_a_gap_and_failures_keep_what_was(server: Server) -> None:
    eventually(lambda: POLLS in server.log_text(), 30, "the first poll")
    pids = server.stub_pids(MODEL)
    with SteadyLoad(server.http_port, per_second=50) as asking:
        sound = model_file(server).read_text()
        model_file(server).write_text("syntax error\n")
        said = f"failed to load '{MODEL}' version 1: Internal: SyntaxError"
        eventually(lambda: said in server.log_text(), 30, "the failure")
        # What has failed may still be on its way out.
        eventually(lambda: pids == server.stub_pids(MODEL), 30, "the same stubs")
        assert "READY" == index_entry(server)["state"]

        model_file(server).write_text(sound)
        write_stamp(server, 7)
        eventually(lambda: _stamp(asking) == 7, 30, "the next version")
        eventually(lambda: set(pids).isdisjoint(server.stub_pids(MODEL)), 30, "the others' end")
    assert not asking.failed()
