"""Output of commands: tables in terminals and in pipes, documents, lines of waiting."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from tests.standard.ctl.fake_server import STATUS, FakeServer, run
from tests.support.waiting import eventually
from zmqtriton_standard.ctl import tables
from zmqtriton_standard.ctl.loading import describe
from zmqtriton_standard.ctl.output import LiveLine, print_document

HEADER = ("Model", "State", "Reason")
ROWS = [("a", "READY", ""), ("b", "UNAVAILABLE", "Error: no\n\nAt:\n  model.py(1)\n")]


def _lines(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    rows: list[tuple[str, str, str]],
    width: int | None,
    **more: bool,
) -> list[str]:
    monkeypatch.setattr(tables, "terminal_width", lambda: width)
    tables.print_table(HEADER, rows, **more)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_pipe_gets_a_line_for_each_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [
        "Model\tState\tReason",
        "a\tREADY",
        "b\tUNAVAILABLE\tError: no At: model.py(1)",
    ] == _lines(capsys, monkeypatch, ROWS, None)


def test_a_reason_of_several_lines_stands_below_its_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [
        "Model  State",
        "a      READY",
        "b      UNAVAILABLE",
        "    Error: no",
        "",
        "    At:",
        "      model.py(1)",
    ] == _lines(capsys, monkeypatch, ROWS, 200)


@pytest.mark.parametrize(("width", "lines"), [(29, 2), (28, 3)])
def test_a_reason_for_which_there_is_no_room_stands_below_its_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, lines: int
) -> None:
    shown = _lines(capsys, monkeypatch, [("b", "UNAVAILABLE", "Error: no")], width)

    assert lines == len(shown)
    assert ("Reason" in shown[0]) == (lines == 2)
    assert "Error: no" in shown[-1]


def test_no_line_of_columns_is_wider_than_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [
        "Model",
        "a",
        "    State: READY",
        "    Reason: why",
        "b",
        "    State: LOADING",
    ] == _lines(capsys, monkeypatch, [("a", "READY", "why"), ("b", "LOADING", "")], 10)


def test_a_reason_cannot_move_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        "    \\u001b[2Jgone"
        == _lines(capsys, monkeypatch, [("b", "READY", "\x1b[2Jgone\nx")], 80)[2]
    )


def test_a_name_takes_half_of_the_terminal_at_most(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"begin{'n' * 200}:1"

    assert [
        "Model                 State  Reason",
        "beginnnnnn…nnnnnnn:1  READY",
        "a                     READY",
    ] == _lines(capsys, monkeypatch, [(name, "READY", ""), ("a", "READY", "")], 40)
    assert f"{name}\tREADY" == _lines(capsys, monkeypatch, [(name, "READY", "")], None)[1]


def test_wide_letters_take_two_places(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ["Model  State    Reason", "\u540d\u524d   READY    why", "a      LOADING"] == _lines(
        capsys, monkeypatch, [("\u540d\u524d", "READY", "why"), ("a", "LOADING", "")], 80
    )


def test_figures_without_room_stand_in_one_line_below_their_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("a", "READY", "why")]

    narrow, narrowest = (
        _lines(capsys, monkeypatch, rows, width, has_figures=True) for width in (15, 8)
    )

    assert ["Model  State", "a      READY", f"    {HEADER[2]} why"] == narrow
    assert ["Model", "a", f"    {HEADER[1]} READY  {HEADER[2]} why"] == narrowest


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def test_numbers_that_json_does_not_have_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = [{"data": [1.5, math.nan, [math.inf, -math.inf]]}]

    print_document("json", {"outputs": outputs, "shape": (2,)})

    document = json.loads(capsys.readouterr().out, parse_constant=_refuse)
    assert {"outputs": [{"data": [1.5, None, [None, None]]}], "shape": [2]} == document


def test_the_status_tells_an_execution_that_lasts(server: FakeServer) -> None:
    (stub,) = (one for one in server.answers["status"]["processes"] if one["role"] == "stub")
    stub["executing_s"] = 100.5

    assert "READY, executing 1m40s" in run("status").output
    stub["executing_s"] = 4.5
    assert "executing" not in run("status").output


def test_the_status_has_the_models_that_requests_load(server: FakeServer) -> None:
    rows = dict.fromkeys(("bytes", "loads", "failures", "idle", "memory", "sleeps"), 0)
    model = {"model": "lazy", **rows, "event": "loaded for a request", "seconds_ago": 7.4}
    on_demand = {"waiting": {"lazy": 3}, "models": [model], "gpus": [], "budget_bytes": 0}
    server.answers["status"] = {**STATUS, "on_demand": on_demand}

    assert "\nlazy\t-\t0\t0\t0\t0\t0\t3\tloaded for a request\t7s\n" in run("status").output


def test_without_a_terminal_there_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LiveLine, "FIRST_S", 0.01)
    monkeypatch.setattr(LiveLine, "EVERY_S", 0.01)

    with LiveLine("m") as line:
        line.show("it is copied: 25 %")
        expected = re.compile(r"^m: it is copied: 25 %, for \d s$", re.MULTILINE)
        eventually(lambda: expected.search(capsys.readouterr().err), 30)


def test_what_is_quick_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveLine("m") as line:
        line.show("it is copied")

    assert ("", "") == capsys.readouterr()


def test_a_load_is_told_by_its_phase() -> None:
    phases = {"m": "Copying s3://b/m: 60 % of 80 MiB", "n": "its files are read"}

    assert "Copying s3://b/m: 60 % of 80 MiB" == describe(phases, "m")
    assert "m (Copying s3://b/m: 60 % of 80 MiB), n (its files are read)" == describe(phases, "")
    assert "" == describe({}, "x")
