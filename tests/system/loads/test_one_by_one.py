"""A server takes the place of another one whose models do not fit twice: requests wait."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.faults.replacements.ways import InOneDirectory, OneByOne
from tests.support.server import Server, tensor
from tests.support.waiting import eventually
from tests.system.replacements.replacing import (
    begin_stream,
    pids_in,
)

pytestmark = pytest.mark.system


@pytest.mark.long(
    "supervisor/control/test_succession.py::test_models_move_when_the_server_before_has_ended",
    "broker/requests/test_waiting_for_load.py::test_a_request_that_was_on_its_way_to_what_went_is_executed_when_it_is_back",
    "system/replacements/test_directories.py::test_a_server_is_replaced_by_a_command",
)
def test_models_are_loaded_when_the_server_before_has_ended(tmp_path: Path) -> None:
    explicit = ("--model-control-mode=explicit", "--load-model=add_sub", "--load-model=tokens")
    way = OneByOne(tmp_path, (*explicit, "--http-workers=1"))
    way.frontends = ()
    way.start()
    [old] = way.servers
    with ExitStack() as ends:
        ends.callback(way.close)
        waiting = ends.enter_context(ThreadPoolExecutor())
        assert 200 == old.request_json("/v2/repository/models/identity_fp32/load", {})[0]
        stream = ends.enter_context(begin_stream(old))
        new = way.next()
        way.servers.append(new)
        new.launch()
        eventually(lambda: "leaves" in old.log_text(), 60, "it has the ports")

        def asked(*call: Any) -> Any:
            """A request that the new server holds; the old one may take a last connection."""
            answer = waiting.submit(*call)
            return answer if not wait([answer], 1.0).done else None

        calls: list[tuple[Any, ...]] = [
            (identity, new, [1.5]),
            (new.request_json, "/v2/models/nobody/infer", {"inputs": []}),
        ]
        answers = [
            eventually(partial(asked, *call), 60, "the new server alone is asked") for call in calls
        ]
        assert 400 == new.status("/v2/health/ready")
        assert "stub" not in new.pids()
        assert not any(each.done() for each in answers)

        stream.close()
        assert [1.5] == answers[0].result(60)
        assert 0 == old.wait(60)
        assert answers[1].result(60)[0] in (400, 404)
        eventually(new.is_ready, 60, "ready")


@pytest.mark.long(
    "supervisor/control/test_succession.py::test_models_move_when_the_server_before_has_ended",
    "system/replacements/test_directories.py::test_a_server_is_replaced_by_a_command",
)
def test_the_command_tells_the_longest_wait_and_goes_back_if_the_new_server_dies(
    tmp_path: Path,
) -> None:
    way = InOneDirectory(tmp_path)
    way.start()
    [server] = way.servers
    imports = server.block_imports("add_sub")
    imports.touch()

    def begin() -> Any:
        command = [sys.executable, "-m", "zmqtriton.ctl.main", "--server", f":{way.http_port}"]
        return subprocess.Popen(
            [*command, "replace", "--one-by-one", "-o", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    pids = []
    try:
        dying = begin()
        assert 0 == server.wait(60)
        [killed] = eventually(lambda: pids_in(way.runtime), 60, "it is alone")
        os.kill(killed, signal.SIGKILL)
        _, said = dying.communicate(timeout=60)
        pids = pids_in(way.runtime)
        assert 1 == dying.returncode
        assert f"status -9; the one before is started again, as pid {pids[0]}" in said

        imports.unlink()
        eventually(server.is_ready, 60, "it serves")
        done, said = begin().communicate(timeout=300)
        assert re.search(r"requests wait for up to \d+ s: .* within 90 s, .* in [\d.]+ s \(", said)
        assert server.is_ready()
        assert pids == [json.loads(done)["before"]]
        pids = pids_in(way.runtime)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        eventually(lambda: not way.runtime.exists(), 60, "it has ended")
        way.close()


def identity(server: Server, values: list[float]) -> Any:
    _, document = server.infer_json("identity_fp32", tensor("INPUT0", "FP32", values))
    return document["outputs"][0]["data"]
