"""The log file of `--log-file`, and how logrotate changes it."""

from __future__ import annotations

import os
import re
import signal
from functools import partial
from pathlib import Path

import pytest

from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system


def _has(path: Path, pattern: re.Pattern[str]) -> bool:
    return pattern.search(path.read_text()) is not None


def test_after_sighup_every_process_writes_to_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "zmqtriton.log"
    options = [f"--log-file={path}", "--model-control-mode=explicit", "--log-verbose=1"]
    with Server(tmp_path / "s", models=["add_sub"], options=options) as server:
        eventually(lambda: "Started HTTPService" in path.read_text(), 30, "the log")
        path.rename(tmp_path / "rotated.log")

        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)

        eventually(path.exists, 30, "a new file")
        assert 0 == path.stat().st_mode & 0o137
        [worker, *_] = server.pids()["http"][1:]
        os.kill(worker, signal.SIGKILL)
        eventually(lambda: server.pids()["http"][1:] not in ([], [worker]), 30, "another process")
        eventually(server.is_ready, 30, "it serves")
        rotated = (tmp_path / "rotated.log").read_text()
        assert not server.control_model("load", "add_sub")
        loaded = re.compile("successfully loaded 'add_sub'")
        eventually(partial(_has, path, loaded), 30, "the line of the load")
        for pid in server.pids()["http"][1:]:
            eventually(partial(_has, path, re.compile(f" {pid} request_log.py:")), 30, "a line")
        assert rotated == (tmp_path / "rotated.log").read_text()
