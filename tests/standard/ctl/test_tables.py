"""Tables in terminals of every width, and in pipes."""

from __future__ import annotations

import pytest

from zmqtriton_standard.ctl import tables

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
