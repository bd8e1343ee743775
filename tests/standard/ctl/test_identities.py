"""The server that is meant among several, where some answer late or never."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.standard.ctl.fake_server import STATUS, FakeServer, run


def identity(name: str) -> dict[str, Any]:
    return {**STATUS["server"], **STATUS["processes"][0], "id": name}


@pytest.fixture
def others(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeServer]]:
    """Two servers, one of which says nothing."""
    for name in ("_IDENTITY_WITHIN_S", "_IDENTITY_AT_LAST_S", "Client.QUICK_TIMEOUT_S"):
        monkeypatch.setattr(f"zmqtriton.control_client.{name}", 0.6)
    servers = [FakeServer(temporary / f"zmqtriton-{name}") for name in ("well", "mute")]
    servers[0].answers["identity"] = identity("well")
    servers[1].answers["identity"] = "silence"
    yield servers
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    "answers",
    [
        {"identity": "silence"},
        {"identity": {"name": "mute"}},
        {"identity": None},
        {"identity": ValueError("unknown"), "status": {}},
        {"identity": ValueError("unknown"), "status": None},
        {"identity": ValueError("unknown"), "status": "silence"},
    ],
    ids=str,
)
def test_what_is_stopped_or_no_such_server_hides_no_other(
    others: list[FakeServer], answers: dict[str, Any]
) -> None:
    others[1].answers |= answers

    shown = run("--server", "well", "status")

    assert (0, "") == (shown.exit_code, shown.stderr)


def test_a_time_out_is_told_as_one(others: list[FakeServer]) -> None:
    refused = run("--server", "mute", "status")

    assert 2 == refused.exit_code
    assert "error: no server that has answered is called 'mute'; running: " in refused.stderr
    assert "'well' (pid 7" in refused.stderr
    # by the others' answers some of its 0.6 s may be over
    assert re.search(r"zmqtriton-mute has not answered 'identity' within 0\.\d", refused.stderr)
    assert "it has not answered in time" in run("servers").stdout


def test_a_server_of_an_older_version_is_known_by_its_status(server: FakeServer) -> None:
    server.answers["identity"] = ValueError("unknown control call 'identity'")

    shown = run("--server", "alpha", "status")

    assert (0, "") == (shown.exit_code, shown.stderr)
