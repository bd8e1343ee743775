"""The file of the access log: turned by logrotate, full, or slow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.waiting import eventually
from zmqtriton_standard.access_log import process
from zmqtriton_standard.access_log.options import problem
from zmqtriton_standard.access_log.process import LogFile


def end(file: LogFile) -> None:
    file.end()
    eventually(lambda: file.has_ended, 30)


def write_until_there(file: LogFile, path: Path) -> None:
    """Write lines until the file has been made anew, and end."""

    def writes_anew() -> bool:
        file.write(b"2\n")
        return path.exists()

    eventually(writes_anew, 30)
    end(file)


@pytest.mark.slow
def test_lines_are_appended_and_a_file_that_was_moved_is_made_anew(tmp_path: Path) -> None:
    path, moved = tmp_path / "log", tmp_path / "log.1"
    path.write_bytes(b"before\n")
    file = LogFile(str(path))
    file.write(b"1\n")
    eventually(lambda: path.read_bytes() == b"before\n1\n", 30)
    path.rename(moved)

    write_until_there(file, path)

    assert moved.read_bytes().startswith(b"before\n1\n")
    assert {b"2"} == set(path.read_bytes().split())
    assert 0 == file.dropped


def test_a_disk_that_is_full_costs_lines_which_are_counted() -> None:
    file = LogFile("/dev/full")
    file.write(b"1\n2\n")
    end(file)

    assert 2 == file.dropped


def test_lines_that_a_slow_disk_does_not_take_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "MAX_BYTES", 5)
    file = LogFile(str(tmp_path / "log"))

    file.write(b"too long\n")

    assert 1 == file.dropped
    end(file)


@pytest.mark.parametrize(
    ("path", "obstacle"),
    [
        ("none/log", "there is no directory '{folder}/none'"),
        (".", "'.' is a directory"),
        ("shut/log", "'{folder}/shut' cannot be written"),
        ("log", ""),
    ],
)
def test_a_file_that_cannot_be_is_told_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, obstacle: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shut").mkdir()
    # root may write anywhere
    monkeypatch.setattr(os, "access", lambda place, _: not str(place).endswith("shut"))

    text = problem({"access_log": path})

    assert (obstacle and f"'--access-log={path}': {obstacle.format(folder=tmp_path)}") == text


@pytest.mark.slow
def test_a_directory_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "log"
    path.parent.mkdir()
    file = LogFile(str(path))
    file.write(b"1\n")
    eventually(path.exists, 30)
    path.unlink()
    path.parent.rmdir()

    write_until_there(file, path)
    assert 0 == file.dropped
