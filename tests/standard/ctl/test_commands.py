"""The commands against a server that a test plays, among them `restart`, `reload` and `replace`."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.standard.ctl.fake_server import STATUS, FakeServer, run
from tests.support.waiting import sleep_of_this_thread
from zmqtriton_standard.ctl.replacing import program_words


def a_line(number: int, text: str) -> dict[str, Any]:
    origin = {"pid": 9, "file": "m_0_0", "line": 3, "model": "m", "instance": "m_0_0"}
    return {"number": number, "time_s": 0.0, "level": "W", **origin, "text": text}


def test_logs_look_as_they_do_in_the_log(server: FakeServer) -> None:
    server.answers["logs"] = {"lines": [a_line(7, 'said "x"\n')], "last": 7, "lost": 0}

    shown, document = run("logs", "m", "--lines", "5"), run("logs", "--json")

    assert (shown.exit_code, shown.stderr) == (0, "")
    assert re.fullmatch(r'W\d{4} [\d:.]+ 9 m_0_0:3\] "said \\"x\\"\\n"\n', shown.stdout)
    assert a_line(7, 'said "x"\n') == json.loads(document.stdout)
    assert [
        ("logs", {"model": "m", "after": 0, "lines": 5}),
        ("logs", {"model": "", "after": 0, "lines": 100}),
    ] == server.calls


def test_followed_logs_go_on_from_the_last_line_until_the_server_ends(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            server.answers["logs"] = {"lines": [a_line(30, "second")], "last": 30, "lost": 22}
        else:
            server.answers["logs"] = "hang up"

    monkeypatch.setattr(time, "sleep", sleep_of_this_thread(pause))
    server.answers["logs"] = {"lines": [a_line(7, "first")], "last": 7, "lost": 0}

    followed = run("logs", "--follow", "--json")

    assert ["first", "second"] == [
        json.loads(line)["text"] for line in followed.stdout.split("\n")[:2]
    ]
    assert [0, 7, 30] == [arguments["after"] for _, arguments in server.calls]
    assert "... 22 lines were lost" in followed.stderr
    assert followed.exit_code == 2


def test_following_ends_well_when_it_is_interrupted(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep_of_this_thread(interrupt))
    server.answers["logs"] = {"lines": [], "last": 0, "lost": 0}

    assert run("logs", "-f").exit_code == 0


@pytest.mark.parametrize(
    "words",
    [
        ["load", "m"],
        ["unload", "m"],
        ["repository", "register", "/x"],
        ["log-settings", "--no-info"],
    ],
)
def test_nothing_is_changed_where_several_servers_could_be_meant(
    several: list[FakeServer], words: list[str]
) -> None:
    refused = run(*words)

    assert refused.exit_code == 2
    assert (
        "error: 2 servers run, so say which is meant, --server ID, PID or PORT; running: 'new' "
        "(pid 70, http 0.0.0.0:8000), 'old' (pid 71, http 0.0.0.0:8001)\n"
    ) == refused.stderr
    assert {"identity"} == {verb for server in several for verb, _ in server.calls}


def test_a_scale_that_was_overtaken_says_so(server: FakeServer) -> None:
    versions = {"1": {"instances": 2, "ready": 2}}
    server.answers["scale"] = {"model": "m", "versions": versions, "overtaken_by": 4}
    server.answers["scale"]["autoscale"] = {"least": 1, "most": 8}
    server.answers["index"] = [{"name": "m"}]

    result = run("scale", "m", "2")

    assert "superseded: 4 instances were requested meanwhile" in result.stdout
    assert "follows the load from 1 to 8 instances" in result.stdout


@pytest.mark.row("L14")
@pytest.mark.parametrize(
    ("then", "status", "text"), [("stop", 0, "the server: stopping\n"), ("nothing", 2, "")]
)
def test_a_server_that_was_to_stop_after_its_drain_may_be_gone(
    server: FakeServer, then: str, status: int, text: str
) -> None:
    server.answers |= {"drain": None, "drain.state": "hang up"}

    finished = run("drain", "--then", then)

    assert (status, text) == (finished.exit_code, finished.stdout)


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


PYTHON = "/opt/old/bin/python3"


@pytest.mark.parametrize(
    ("running", "script", "named", "expected"),
    [
        # a script that names the Python that has run it
        ("server", {"script": "{place}/server"}, "", ["{place}/server"]),
        # a Python was named
        ("server", {"script": ""}, "", [PYTHON, "server"]),
        # servers of an earlier version: of a script, of a file that is none, and of a module
        ("server", {}, "", ["{place}/server"]),
        ("data", {}, "", [PYTHON, "data"]),
        ("-m server", {}, "", [PYTHON, "-m", "server"]),
        ("server", {}, "/opt/new/bin/zmqtriton", ["/opt/new/bin/zmqtriton"]),
    ],
)
def test_a_script_is_started_without_the_python_of_the_running_server(
    running: str, script: dict[str, str], named: str, expected: list[str], tmp_path: Path
) -> None:
    (tmp_path / "server").touch(0o755)
    (tmp_path / "data").touch(0o644)
    start = {"program": [PYTHON, *running.split()], "directory": str(tmp_path)}

    words = program_words(
        {**start, **{k: v.format(place=tmp_path) for k, v in script.items()}}, named
    )

    assert [each.format(place=tmp_path) for each in expected] == words
