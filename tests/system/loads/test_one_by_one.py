"""A server takes the place of another one whose models do not fit twice: requests wait."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.replacements.ways import InOneDirectory
from tests.support.waiting import eventually
from tests.system.replacements.replacing import (
    pids_in,
)

pytestmark = pytest.mark.system


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
