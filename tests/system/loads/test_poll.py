"""Mode poll: the repository rules, and half a copy, a broken model or a deletion harms no other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.faults.stamps import (
    MODEL,
    SteadyLoad,
    control_model,
    index_entry,
    model_file,
    write_stamp,
)
from tests.support.server import MODELS_DIRECTORY, Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

FRONTENDS = ()

POLLS = "Polling model repository"


MODELS = (MODEL,)
OPTIONS = ("--model-control-mode=poll", "--repository-poll-secs=1", "--log-verbose=1")


def _is_known(server: Server, model: str) -> bool:
    _, index = server.request_json("/v2/repository/index", {})
    return any(entry["name"] == model for entry in index)


def _stamp(asking: SteadyLoad) -> int:
    return asking.answers[-1].stamps[0] if asking.answers else -1


@pytest.mark.row("F02")
def test_changes_are_served_without_a_gap_and_failures_keep_what_was(server: Server) -> None:
    eventually(lambda: POLLS in server.log_text(), 30, "the first poll")
    pids = server.stub_pids(MODEL)
    with SteadyLoad(server.http_port, per_second=50) as asking:
        sound = model_file(server).read_text()
        model_file(server).write_text("syntax error\n")
        said = f"failed to load '{MODEL}' version 1: Internal: SyntaxError"
        eventually(lambda: said in server.log_text(), 30, "the failure")
        # What has failed may still be on its way out.
        eventually(lambda: pids == server.stub_pids(MODEL), 30, "the same stubs")
        assert "READY" == index_entry(server)["state"]

        model_file(server).write_text(sound)
        write_stamp(server, 7)
        eventually(lambda: _stamp(asking) == 7, 30, "the next version")
        eventually(lambda: set(pids).isdisjoint(server.stub_pids(MODEL)), 30, "the others' end")
    assert not asking.failed()


@pytest.mark.row("F02", "--model-control-mode", "--repository-poll-secs")
def test_a_model_comes_and_goes_with_its_directory(server: Server) -> None:
    pids = server.stub_pids(MODEL)
    shutil.copytree(MODELS_DIRECTORY / "add_sub", server.repository / "late")
    eventually(lambda: server.status("/v2/models/late/ready") == 200, 30, "it is loaded")

    shutil.rmtree(server.repository / "late")
    eventually(lambda: not _is_known(server, "late"), 30, "it is forgotten")
    eventually(lambda: not server.stub_pids("late"), 30, "its process has ended")
    assert pids == server.stub_pids(MODEL)


@pytest.mark.row("F20")
def test_nobody_else_says_what_is_loaded(server: Server) -> None:
    text = "explicit model load / unload is not allowed if polling is enabled"
    text += ". Start the server with --model-control-mode=explicit"

    assert (503, text) == control_model(server, "load")
    assert (503, text) == control_model(server, "unload")


def test_a_repository_that_is_gone_for_a_while_unloads_nothing(server: Server) -> None:
    pids = server.stub_pids(MODEL)
    away = Path(f"{server.repository}-away")
    server.repository.rename(away)
    try:
        said = "failed to poll the model repository: failed to stat file"
        eventually(lambda: said in server.log_text(), 30, "a poll of nothing")
        assert 200 == server.status(f"/v2/models/{MODEL}/ready")
    finally:
        away.rename(server.repository)
    assert pids == server.stub_pids(MODEL)
