"""`zmqtriton-ctl restart` and `reload` against a server that a test plays."""

from __future__ import annotations

from typing import Any

import pytest

from tests.standard.ctl.fake_server import STATUS, FakeServer, run


@pytest.mark.parametrize(
    ("ended", "text"),
    [(0, "its load has begun"), (1, "1 process ended"), (3, "3 processes ended")],
)
def test_a_restart_tells_what_it_did(server: FakeServer, ended: int, text: str) -> None:
    server.answers |= {"restart": ended, "index": [{"name": "m"}]}

    assert f"restarted m: {text}\n" == run("restart", "m", "--no-wait").stdout
    assert ("restart", {"model": "m", "wait": False}) in server.calls


def stub(state: str, serial: int) -> dict[str, Any]:
    return {**STATUS["processes"][1], "state": state, "serial": serial}


def test_a_restart_waits_for_new_processes_alone(server: FakeServer) -> None:
    looks = iter([stub("READY", 4), stub("READY", 4), stub("BACKOFF", 4), stub("LOADING", 5)])
    server.answers |= {"restart": 1, "index": [{"name": "m"}]}
    server.answers["status"] = lambda: {
        "processes": [
            stub("STOPPING", 2),
            stub("DRAINING", 3),
            next(looks, stub("READY", 5)),
        ]
    }

    assert "restarted m: 1 process ended\n" == run("restart", "m").stdout
    assert [] == list(looks)


def test_a_restart_in_vain_says_why(server: FakeServer) -> None:
    looks = iter([stub("READY", 4), stub("LOADING", 5)])
    server.answers |= {"restart": 1, "index": [{"name": "m"}]}
    server.answers["status"] = lambda: {"processes": [next(looks, stub("FAILED", 5))]}

    refused = run("restart", "m")

    assert 1 == refused.exit_code
    assert refused.stderr == (
        "error: instance m_0_0 is given up, see `zmqtriton-ctl explain m`: "
        "killed by [bold]SIGKILL\n"
    )


RELOADED: dict[str, Any] = {
    "loaded": ["a"],
    "unchanged": ["b"],
    "unloaded": ["c"],
    "gone": ["d"],
    "failed": {},
}


def test_a_reload_tells_what_became_of_each_model(server: FakeServer) -> None:
    server.answers["reload"] = RELOADED

    done = run("reload")
    server.answers["reload"] = {**RELOADED, "failed": {"e": "load failed: no\n"}}
    failed = run("reload")

    assert 0 == done.exit_code
    assert done.stdout.splitlines() == [
        "loaded a",
        "unloaded c: its directory is gone",
        "d serves on without its directory; `zmqtriton-ctl unload d` ends it",
    ]
    assert (1, "error: e: load failed: no\n") == (failed.exit_code, failed.stderr)
    assert ("reload", {"model": "", "renews": False}) in server.calls
