"""`zmqtriton-ctl explain` about a server that is not well, and about some of its models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from tests.standard.ctl.system.commands import ctl
from tests.standard.tools.system import broken_models
from tests.support.certificates import Authority, CertificatePair
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system


def said(server: Server) -> list[Any]:
    """Return the findings about the server itself."""
    done = ctl(server, "explain", "-o", "json")
    assert 0 == done.exit_code, done.stderr
    return [one for one in json.loads(done.stdout) if one["model"] == "the server"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trouble")


@pytest.fixture(scope="module")
def pairs(directory: Path) -> list[CertificatePair]:
    """Return a certificate and one that has expired."""
    authority = Authority(directory)
    pairs = [authority.issue("good", days=90), authority.issue("over", days=-1)]
    for pair in pairs:
        pair.key.chmod(0o600)
    return pairs


@pytest.fixture(scope="module")
def server(directory: Path, pairs: list[CertificatePair]) -> Iterator[Server]:
    """With all that can go wrong, and with models that are broken."""
    pair, _ = pairs
    (directory / "logs").mkdir()
    options = [
        f"--runtime-directory={directory / 'run'}",
        "--grpc-use-ssl=true",
        f"--grpc-server-cert={pair.cert}",
        f"--grpc-server-key={pair.key}",
        f"--access-log={directory / 'logs' / 'access'}",
        f"--log-file={directory / 'logs' / 'log'}",
        "--jobs",
        f"--state-directory={directory / 'state'}",
        "--model-control-mode=explicit",
        "--load-model=*",
        "--exit-on-error=false",
        "--strict-readiness=false",
    ]
    server = Server(directory / "s", options=options)
    broken_models.write(server.repository)
    with server:
        yield server


def ask(server: Server, model: str) -> int:
    """Return the status of the answer."""
    tensor = {"name": "IN", "shape": [1], "datatype": "FP32", "data": [1]}
    return server.request_json(f"/v2/models/{model}/infer", {"inputs": [tensor]})[0]


def tells(server: Server, model: str, cause: str) -> None:
    """Wait until it does: what is told comes from logs and counts, which follow the answers."""

    def is_told() -> bool:
        ask(server, model)
        return cause in json.loads(ctl(server, "explain", model, "-o", "json").stdout)[0]["text"]

    eventually(is_told, 60, f"{model}: {cause}")


@pytest.mark.row("L12")
def test_models_that_raise_die_or_fail_are_explained(server: Server) -> None:
    cause, *lines = ctl(server, "explain", "raises").stdout.splitlines()
    # a machine that is busy with others is told after it
    own = list(takewhile(lambda line: line.startswith("  "), lines))
    assert cause.startswith("raises: not ready: it raises ValueError")
    advice = "  Correct the model, or what it needs there."
    commands = ["  next: zmqtriton-ctl logs raises", "  then: zmqtriton-ctl restart raises"]
    assert [advice, *commands] == own

    for _ in range(7):
        assert 503 == ask(server, "dies")
    assert 500 == ask(server, "fails")
    tells(server, "dies", "given up after")
    tells(server, "fails", "KeyError: 'no such column'")


def test_a_certificate_that_has_expired_and_directories_that_are_gone_are_told(
    directory: Path, pairs: list[CertificatePair], server: Server
) -> None:
    assert [] == said(server)
    assert "zmqtriton_certificate_not_after_seconds" in server.metrics_text()

    pair, over = pairs
    shutil.copy(over.key, pair.key)
    shutil.copy(over.cert, pair.cert)
    logs = directory / "logs"
    log = logs / "log"
    eventually(lambda: "the certificate of grpc has expired" in log.read_text(), 60)
    shutil.rmtree(directory / "state" / "jobs")
    shutil.rmtree(logs)

    texts = [one["text"] for one in said(server)]
    assert any("has expired" in text for text in texts), texts
    gone = "the directory of the jobs is gone, or its files are"
    assert f"{gone}: {directory / 'state' / 'jobs'}" in texts
    assert any(text.startswith("the log is lost: ") for text in texts), texts
    [line] = [
        line
        for line in server.metrics_text().splitlines()
        if line.startswith('zmqtriton_certificate_not_after_seconds{service="grpc"}')
    ]
    assert 0 < float(line.split()[-1]) < 2e9
