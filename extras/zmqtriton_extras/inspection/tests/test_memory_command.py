"""Memory that has grown, as a command prints it."""

from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_extras.inspection.memory_command import _print, read

EVIL = "x\x1b]0;owned\x07\u202e\nforged"


def answer() -> dict[str, Any]:
    """What an instance answers whose model has chosen all texts."""
    line = {"file": f"/m/{EVIL}", "line": 3, "is_own": True, "bytes": 1 << 20, "count": 5}
    holder = {"name": EVIL, "kind": EVIL, "before": 1, "after": 2, "file": f"/m/{EVIL}", "line": 4}
    part = {
        "seconds": 4.0,
        "directories": [],
        "resident": [1 << 20, 9 << 20],
        "lines": [line],
        "traced": 1 << 20,
        "holders": [holder],
        "types": [],
        "arrays": [1, 2],
        "tensors": [[EVIL, 1, 2]] * 1000,
        "cuda": [],
    }
    return {"model": "m", "instances": [{"instance": "m_0", "memory": part}]}


def test_texts_of_a_model_move_no_terminal_and_are_few(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _print(read(answer()))

    printed = capsys.readouterr().out
    assert "are from x\\u001b]0;owned\\u0007\\u202e\\nforged:3, and `x" in printed
    assert "Tensors on x\\u001b]0;owned" in printed
    assert not {"\x1b", "\x07", "\u202e"} & set(printed)
    assert not [line for line in printed.splitlines() if line.startswith("forged")]
    assert 50 > len(printed.splitlines())
