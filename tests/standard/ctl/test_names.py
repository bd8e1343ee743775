"""Names that there are not, of models and of commands."""

from __future__ import annotations

from typing import Any

import pytest

from tests.standard.ctl.fake_server import FakeServer, run
from zmqtriton.control_client import Client

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
