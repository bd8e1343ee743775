"""`zmqtriton token`: what stands in the file afterwards, and what is printed."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import pytest

from zmqtriton.main import main
from zmqtriton_floor import token_file
from zmqtriton_standard.commands import token as command


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens"


def make(file: Path, name: str, *more: str) -> int:
    return main(["token", "new", "--name", name, "--scopes", "infer", *more, str(file)])


@pytest.mark.row("L09")
def test_a_new_token_is_printed_once_and_its_hash_is_kept(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_today", lambda: date(2099, 12, 31))  # its last day
    words = ["--scopes=infer,control", "--models=a*,b", "--expires=2099-12-31"]

    status = main(["token", "new", "--name=ann", *words, str(file)])

    token, said = capsys.readouterr()
    assert 0 == status
    (grant,) = token_file.Grant.read_all(str(file))
    assert grant.digest == token_file.Grant.digest_of(token.strip())
    assert grant.line().endswith(" scopes=infer,control models=a*,b expires=2099-12-31")
    assert len(token.strip()) >= len("zmqt_") + 40
    assert token.strip() not in file.read_text()
    assert "control, infer for models a*, b, until 2099-12-31" in said
    assert 0o600 == file.stat().st_mode & 0o777


def test_tokens_are_listed_and_removed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(file, "ann")
    make(file, "bob", "--models=m?")
    text = file.read_text()
    file.write_text(f"# of the desk\n{text}\n" + text.splitlines()[0].replace("ann", "#ann"))
    file.chmod(0o640)
    capsys.readouterr()

    assert 0 == main(["token", "list", str(file)])
    listed = capsys.readouterr().out
    assert 0 == main(["token", "remove", "ann", str(file)])

    assert "| ann  | infer  | *      | never   |" in listed
    assert "| bob  | infer  | m?     | never   |" in listed
    assert "sha256" not in listed
    assert ["bob"] == [grant.name for grant in token_file.Grant.read_all(str(file))]
    assert file.read_text().startswith("# of the desk\n")
    assert "#ann" in file.read_text()
    assert 0o640 == file.stat().st_mode & 0o777
    assert ["tokens"] == os.listdir(file.parent)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["new", "--name=ann", "--scopes=infer"], "line 2: the name of another line"),
        (["new", "--name=a b", "--scopes=infer"], "line 2: expecting NAME sha256:HASH"),
        (["new", "--name=é", "--scopes=infer"], "line 2: the name may have"),
        (["new", "--name=x", "--scopes=infer", "--expires=2001-01-01"], "2001-01-01 is over"),
        (["remove", "bob"], "there is no token of the name bob"),
    ],
)
def test_what_cannot_be_done_changes_nothing(
    file: Path, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    make(file, "ann")
    before = file.read_bytes()
    capsys.readouterr()

    status = main(["token", *words, str(file)])

    printed = capsys.readouterr()
    assert (1, "") == (status, printed.out)
    assert f"error: {file}: {problem}" in printed.err
    assert before == file.read_bytes()


def test_commands_at_the_same_time_lose_nothing(file: Path) -> None:
    names = [f"name{number}" for number in range(3)]

    def run(name: str) -> int:
        command = [sys.executable, "-m", "zmqtriton", "token", "new", "--scopes=infer"]
        return subprocess.run([*command, f"--name={name}", str(file)], timeout=60).returncode

    with ThreadPoolExecutor(len(names)) as pool:
        statuses = list(pool.map(run, names))

    assert [0] * len(names) == statuses
    assert names == sorted(grant.name for grant in token_file.Grant.read_all(str(file)))
