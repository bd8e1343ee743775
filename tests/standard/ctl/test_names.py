"""Names that there are not, of models and of commands, and the choice among several servers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.standard.ctl.fake_server import STATUS, FakeServer, run
from zmqtriton.control_client import Client
from zmqtriton.diagnosis.facts.server import ServerAnswers

#: A model without lines in the log.
LINES: dict[str, Any] = {"lines": [], "last": 0, "lost": 0}


@pytest.mark.parametrize(
    "words",
    [
        ("status", "resnt"),
        ("stats", "resnt"),
        ("logs", "resnt"),
        ("stacks", "resnt"),
        ("scale", "resnt", "2"),
        ("config", "resnt"),
    ],
    ids=lambda words: words[0],
)
def test_a_name_that_no_model_has_is_told_with_the_one_that_was_meant(
    server: FakeServer, words: tuple[str, ...]
) -> None:
    of_nobody = {"logs": LINES, "stacks": [], "config": {}, "index": [{"name": "resnet"}]}
    server.answers.update(of_nobody)

    refused = run(*words)

    assert (1, "") == (refused.exit_code, refused.stdout)
    assert "error: there is no model 'resnt'; did you mean 'resnet'?\n" == refused.stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["staus"], "status"),
        (["log"], "logs"),
        (["canary", "statsu"], "status"),
        (["env", "prepar"], "prepare"),
        (["repository", "registr"], "register"),
        pytest.param(["fleet", "statsu"], "status", marks=pytest.mark.addons),
    ],
)
@pytest.mark.extra("canaries", "fleet")
def test_a_command_that_there_is_not_is_answered_with_a_similar_one(
    server: FakeServer, words: list[str], meant: str
) -> None:
    result = run(*words)

    assert 2 == result.exit_code
    assert f"Did you mean '{meant}'?" in result.output


@pytest.mark.extra("canaries", "fleet")
def test_a_command_that_is_like_none_is_answered_with_no_guess(server: FakeServer) -> None:
    result = run("canary", "xyzzy")

    assert 2 == result.exit_code
    assert "No such command 'xyzzy'" in result.output
    assert "Did you mean" not in result.output


@pytest.mark.parametrize(
    "words",
    ["unload m", "restart m", "scale m 2", "drain m", "reload m", "drain", "undrain"],
)
def test_a_server_that_is_stopped_is_not_waited_for(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setattr(Client, "QUICK_TIMEOUT_S", 0.01)
    server.answers.update(dict.fromkeys(("index", "drain", "undrain"), "silence"))

    refused = run(*words.split())

    assert 2 == refused.exit_code
    assert "error: timed out: the server in " in refused.stderr
    assert "within 0.01 s; it is busy or stopped" in refused.stderr


MANY = [{"name": f"m{n}", "version": "1", "state": "UNAVAILABLE"} for n in range(200)]


@pytest.mark.addons
def test_a_server_without_models_is_explained(server: FakeServer) -> None:
    server.answers["status"] = {**STATUS, "repositories": ["/srv/models"], "counts": []}

    shown = run("explain").stdout
    (finding,) = json.loads(run("explain", "-o", "json").stdout)

    assert shown.startswith("the server: it has no models\n  It looks in /srv/models. ")
    assert "it has no models" == finding["text"]


@pytest.mark.addons
def test_a_repository_that_does_not_answer_is_explained(server: FakeServer) -> None:
    server.answers["status"] = {**STATUS, "counts": [], "silent_places": ["/srv/models"]}

    assert "the server: its repository /srv/models does not answer\n" in run("explain").stdout


@pytest.mark.addons
def test_a_server_that_takes_all_of_the_time_is_asked_nothing_more(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerAnswers, "WITHIN_S", 0.0)
    server.answers["index"] = MANY[:1]

    assert "not all was looked at within 0 s" in run("explain").stderr
    assert {"status", "index"} == {verb for verb, _ in server.calls}


def test_who_waits_for_a_model_without_a_version_and_for_ports_is_told_so(
    server: FakeServer,
) -> None:
    why = {"kind": "NO_VERSION", "text": "Not loaded: No model version was found"}
    server.answers.update(index=[{"name": "m", "why": why}], is_open=False)

    late = run("wait", "--timeout", "0").stderr

    reasons = "m is without a version to serve; its ports are not open yet"
    assert f"error: not ready after 0 s: {reasons}\n" == late


def test_who_waits_for_many_models_is_told_some(server: FakeServer) -> None:
    server.answers["index"] = MANY

    late = run("wait", "--timeout", "0").stderr

    assert late.startswith("error: not ready after 0 s: m0 version 1 is UNAVAILABLE, m1 version 1")
    assert late.endswith(
        "m9 version 1 is UNAVAILABLE and 190 more; `zmqtriton-ctl explain` says why\n"
    )


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


@pytest.mark.slow
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


@pytest.mark.slow
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
