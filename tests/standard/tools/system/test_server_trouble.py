"""`zmqtriton-ctl explain` about a server whose models are well, and which is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.standard.ctl.system.commands import ctl
from tests.support.certificates import Authority
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system


def said(server: Server) -> list[Any]:
    """Return the findings about the server itself."""
    done = ctl(server, "explain", "-o", "json")
    assert 0 == done.exit_code, done.stderr
    return [one for one in json.loads(done.stdout) if one["model"] == "the server"]


def test_a_certificate_that_has_expired_and_directories_that_are_gone_are_told(
    tmp_path: Path,
) -> None:
    authority, logs = Authority(tmp_path), tmp_path / "logs"
    pair, over = authority.issue("server", days=90), authority.issue("over", days=-1)
    for each in (pair, over):
        each.key.chmod(0o600)
    logs.mkdir()
    options = [
        f"--runtime-directory={tmp_path / 'run'}",
        "--grpc-use-ssl=true",
        f"--grpc-server-cert={pair.cert}",
        f"--grpc-server-key={pair.key}",
        f"--access-log={logs / 'access'}",
        f"--log-file={logs / 'log'}",
        "--jobs",
        f"--state-directory={tmp_path / 'state'}",
    ]
    with Server(tmp_path / "s", ["add_sub"], options=options) as server:
        assert [] == said(server)
        assert "zmqtriton_certificate_not_after_seconds" in server.metrics_text()

        shutil.copy(over.key, pair.key)
        shutil.copy(over.cert, pair.cert)
        log = logs / "log"
        eventually(lambda: "the certificate of grpc has expired" in log.read_text(), 60)
        shutil.rmtree(tmp_path / "state" / "jobs")
        shutil.rmtree(logs)

        texts = [one["text"] for one in said(server)]
        assert any("has expired" in text for text in texts), texts
        gone = "the directory of the jobs is gone, or its files are"
        assert f"{gone}: {tmp_path / 'state' / 'jobs'}" in texts
        assert any(text.startswith("the log is lost: ") for text in texts), texts
        [line] = [
            line
            for line in server.metrics_text().splitlines()
            if line.startswith('zmqtriton_certificate_not_after_seconds{service="grpc"}')
        ]
        assert 0 < float(line.split()[-1]) < 2e9
