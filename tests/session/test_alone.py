"""The choice of tests that run alone, and what is told of those that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import alone

TESTS = [f"tests/{file}.py::test_{number}[a b::c]" for file in "abc" for number in range(4)]


def test_a_seed_draws_of_all_files_in_turn() -> None:
    drawn = alone.draw(TESTS, "1", 8)

    assert drawn == alone.draw(TESTS, "1", 8)
    assert drawn != alone.draw(TESTS, "2", 8)
    assert 8 == len(set(drawn))
    for turn in (drawn[:3], drawn[3:6]):
        assert {"a", "b", "c"} == {Path(test.partition("::")[0]).stem for test in turn}
    assert sorted(TESTS) == sorted(alone.draw(TESTS, "1", 100))


def test_those_that_fail_alone_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_file.py").write_text(
        "seen = []\ndef test_first(): seen.append(1)\ndef test_second(): assert seen\n"
    )
    monkeypatch.setattr(alone, "ROOT", tmp_path)

    status = alone.main(["--count", "5", "--seed", "7"])

    output = capfd.readouterr().out
    assert 1 == status
    assert output.startswith("2 tests of seed 7, each alone\n")
    assert "assert seen" in output
    assert "fails alone: pytest test_file.py::test_second\n" in output
    assert output.endswith("1 passed or were skipped, 1 failed\n")
