"""Names that no model or command has, and servers with no models or very many."""

from __future__ import annotations

import json

import pytest

from tests.standard.ctl.fake_server import STATUS, FakeServer, run
from zmqtriton.diagnosis.facts.server import ServerAnswers

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
