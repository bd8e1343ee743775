"""Disks, files with secrets, Pythons of models and their variables."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.diagnosis.doctor.findings import MIB, disk, model, only, texts, write
from zmqtriton.diagnosis.rules import files, servers
from zmqtriton_standard.environments import findings as environments

pytestmark = pytest.mark.slow


def test_a_file_of_tokens_that_all_can_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.touch(mode=0o644)
    options = {"tokens": str(path)}
    public = only(files.judge_secret_files(options))
    path.chmod(0o600)
    private = texts(files.judge_secret_files(options))
    path.unlink()

    assert "warning: every user of this machine can read" in public
    assert [] == private
    assert "error: --tokens:" in only(files.judge_secret_files(options))


# ---------------------------------------------------------------------- disks


def test_a_log_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk(monkeypatch)
    well = texts(files.judge_log(f"{tmp_path}/server.log"))
    disk(monkeypatch, free=5 * MIB)

    text = only(files.judge_log(f"{tmp_path}/server.log"))

    assert [] == well
    assert f"warning: the disk of {tmp_path}, for the log, has 5 MiB left" == text


def test_a_log_that_is_gone_is_told_where_its_descriptor_cannot_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "iterdir", refuse)
    log = tmp_path / "server.log"

    assert "the log is lost: " in only(files.judge_log(str(log), pid=1))
    log.touch()
    assert not any("lost" in text for text in texts(files.judge_log(str(log), pid=1)))


def test_a_place_for_runtime_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk(monkeypatch)
    well = texts(files.judge_temporary(lambda: tmp_path))
    disk(monkeypatch, free=0)
    full = only(files.judge_temporary(lambda: tmp_path))

    def find_none() -> Path:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    none = only(files.judge_temporary(find_none))

    assert [] == well
    assert f"warning: the disk of {tmp_path}, for runtime directories, has 0 MiB left" == full
    assert "error: no runtime directory can be made: No usable temporary directory found" == none


@pytest.mark.parametrize(
    ("flags", "free", "expected"),
    [
        (0, 2 << 30, ""),
        (0, 5 * MIB, "warning: the disk of {} has 5 MiB left"),
        (os.ST_NOEXEC, 2 << 30, "{} environments of models cannot run from {}: it is mounted no"),
    ],
)
def test_a_cache_of_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: int, free: int, expected: str
) -> None:
    repository = tmp_path / "models"
    options = {"environment-directory": str(tmp_path / "cache"), "build-environments": True}
    write(model(repository, "built") / "requirements.txt", "numpy\n")
    disk(monkeypatch, free, f_flag=flags)

    with_one = texts(environments.judge_cache([str(repository)], options))
    without = texts(environments.judge_cache([], options))

    path = options["environment-directory"]
    for severity, judged in (("error:", with_one), ("note:", without)):
        places = (severity, path) if flags else (path,)
        assert [text[: len(expected.format(*places))] for text in judged] == (
            [expected.format(*places)] if expected else []
        )


def test_a_cache_that_is_not_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)

    text = only(environments.judge_cache([], {"environment-directory": str(tmp_path)}))

    assert f"note: environments of models cannot be kept in {tmp_path}: this user may" in text


# ---------------------------------------------------------------------- models


@pytest.mark.row("L13")
def test_pythons_that_models_lack(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    old = tmp_path / "old"
    for path in (old / "bin/activate", old / "bin/python", old / "lib/python3.7/site.py"):
        write(path, "")
    (old / "bin/python").chmod(0o755)
    model(repository, "fine")
    model(repository, "aged", "EXECUTION_ENV_PATH", str(old))
    model(repository, "gone", "EXECUTION_ENV_PATH", "/nowhere/env.tar.gz")
    model(repository, "missing", "PYTHON_EXECUTABLE", "python3.99")
    write(repository / "torn" / "config.pbtxt", "name: [")
    (repository / "void").mkdir()

    judged = texts(environments.judge_pythons([str(repository)], {}))

    assert 5 == len(judged)
    assert "error: model torn cannot be loaded: " in judged[3]
    assert "error: model void cannot be loaded: " in judged[4]
    assert "error: model aged has no usable Python" in judged[0]
    assert "is Python 3.7; models need 3.8 or newer" in judged[0]
    assert "model gone has no usable Python: Failed to get the canonical path" in judged[1]
    assert "PYTHON_EXECUTABLE 'python3.99': there is no such interpreter" in judged[2]


def test_uv_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "models"
    write(model(repository, "built") / "requirements.txt", "numpy\n")
    options = {"build-environments": True}
    well = texts(environments.judge_pythons([str(repository)], options))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))

    text = only(environments.judge_pythons([str(repository)], options))

    assert [] == well
    assert "error: uv is missing, which builds the environments of built" == text


@pytest.mark.parametrize(
    ("names", "expected", "command"),
    [
        (
            [],
            "models get all variables of the environment but the server's own",
            "zmqtriton --model-env=NAME ...",
        ),
        (
            ["DATABASE_URL", "APP_*"],
            "models get only the variables that libraries need and those that --model-env names: "
            "DATABASE_URL, APP_*",
            "zmqtriton --model-env=DATABASE_URL '--model-env=APP_*' ...",
        ),
        (
            ["*"],
            "models get all variables of the environment, the server's own, too (--model-env=*)",
            "zmqtriton-ctl config",
        ),
    ],
)
def test_which_variables_models_get_is_said(names: list[str], expected: str, command: str) -> None:
    (finding,) = servers.judge_variables({"model-env": names})

    assert [f"note: {expected}"] == texts([finding])
    assert (command,) == finding.commands
    assert [] == texts(servers.judge_variables({})), "an older server does not say"
