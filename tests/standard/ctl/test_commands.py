"""The commands against a server that a test plays."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from tests.standard.ctl.fake_server import FakeServer, run
from tests.support.waiting import sleep_of_this_thread


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
