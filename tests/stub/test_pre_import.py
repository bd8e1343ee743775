"""Checksums and priorities, before a model is imported."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from zmqtriton_stub.api.errors import TritonModelException
from zmqtriton_stub.own_process import check_files, take_priority

CONTENT = b"weights" * 1000


def asking(name: str, checksum: str) -> Any:
    agent = {"name": "checksum", "parameters": {f"MD5:{name}": checksum}}
    return {"model_repository_agents": {"agents": [agent]}}


@pytest.mark.row("E49")
def test_files_must_have_the_checksums_that_were_given(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "weights").write_bytes(CONTENT)
    right = hashlib.md5(CONTENT).hexdigest()

    check_files({}, str(tmp_path))
    check_files(asking("1/weights", right.upper()), str(tmp_path))
    with pytest.raises(TritonModelException) as wrong:
        check_files(asking("1/weights", "0" * 32), str(tmp_path))
    with pytest.raises(TritonModelException, match="'1/gone' for its checksum: No such file"):
        check_files(asking("1/gone", right), str(tmp_path))

    expected = f"Mismatched MD5 hash for file 1/weights, expected {'0' * 32}, got {right}"
    assert expected == str(wrong.value)


@pytest.mark.row("E48")
@pytest.mark.parametrize(
    ("priority", "expected"),
    [("PRIORITY_MAX", [-10]), ("PRIORITY_MIN", [10]), ("PRIORITY_DEFAULT", [])],
)
def test_a_priority_is_that_of_the_process(
    monkeypatch: pytest.MonkeyPatch, priority: str, expected: list[int]
) -> None:
    priorities: list[int] = []
    monkeypatch.setattr(os, "nice", priorities.append)

    take_priority({"optimization": {"priority": priority}}, lambda level, text: None)

    assert expected == priorities


@pytest.mark.row("E48")
def test_a_priority_that_the_system_refuses_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(by: int) -> int:
        raise PermissionError(1, os.strerror(1))

    monkeypatch.setattr(os, "nice", refuse)
    said: list[tuple[str, str]] = []

    take_priority(
        {"optimization": {"priority": "PRIORITY_MAX"}},
        lambda level, text: said.append((level, text)),
    )

    assert [("W", "PRIORITY_MAX has no effect: Operation not permitted")] == said
