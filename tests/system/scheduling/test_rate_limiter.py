"""The rate limiter in a real server: who executes beside whom, and what is told of it."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.standard.ctl.system.commands import ctl
from tests.support.journal import ask_journal, read_journal
from tests.support.server import Copy, Server
from tests.support.waiting import eventually

_GROUPS = {
    "first": 'resources { name: "R" count: 1 }',
    "second": 'resources { name: "R" count: 1 } priority: 2',
}


pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            Copy(
                "journal",
                name,
                edit=("kind: KIND_CPU }", f"kind: KIND_CPU rate_limiter {{ {group} }} }}"),
            )
            for name, group in _GROUPS.items()
        ],
        options=(
            "--runtime-directory=@DIRECTORY@/run",
            "--rate-limit=execution_count",
            "--rate-limit-resource=R:1",
            "--model-control-mode=explicit",
            "--load-model=first",
            "--load-model=second",
        ),
        frontends=("metrics",),
    ),
]


def _open(path: Path) -> set[str]:
    """Return what has begun and not ended."""
    records = read_journal(path)
    ended = {record.id for record in records if record.event == "end"}
    return {record.id for record in records} - ended


@pytest.mark.row("E38", "--rate-limit", "--rate-limit-resource")
def test_who_holds_a_resource_is_shown_and_its_death_gives_it_back(server: Server) -> None:
    held = threading.Thread(target=ask_journal, args=(server, "held", 60_000, "first"))
    held.start()
    eventually(lambda: "held" in _open(server.journal), 60, "it executes")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(ask_journal, server, "waiting", 0, "second")
        row = r"R\t0\t1 of 1\tfirst_0_0 \(1\)\tsecond_0_0"
        eventually(lambda: re.search(row, ctl(server, "status").output), 60, "the other one waits")
        metrics = server.metrics_text()
        assert not waiting.done()
        server.kill_only("stub", "first")

        assert 200 == waiting.result()
    held.join()
    assert 'zmqtriton_resource_count{device="0",resource="R"} 1' in metrics
    assert 'zmqtriton_resource_in_use{device="0",resource="R"} 1' in metrics
