"""The file of bearer tokens: its lines, and which files are not read."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest

from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import ALL_MODELS, Grant, TokenFileError

A, B = (token_file.Grant.digest_of(token) for token in ("a", "b"))
_SCOPES = "scopes=infer"


def line(name: str = "a", digest: bytes = A, rest: str = _SCOPES) -> str:
    return f"{name} sha256:{digest.hex()} {rest}"


@pytest.mark.row("L09")
def test_a_line_says_what_a_token_is_good_for() -> None:
    grants = token_file.Grant.parse_all(
        "# tokens of the desk\n\n"
        + line("ann@desk", A, "scopes=infer,control")
        + "\r\n"
        + line("b", B, "  expires=2027-01-31   models=a*,exact scopes=metrics")
    )

    assert grants == (
        Grant("ann@desk", A, frozenset({"infer", "control"}), ALL_MODELS, None),
        Grant("b", B, frozenset({"metrics"}), ("a*", "exact"), date(2027, 1, 31)),
    )


_SECRET = "zmqt_" + "Tg" * 20


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a", "line 1: expecting NAME sha256:HASH"),
        (f"a {_SECRET} scopes=infer", "line 1: expecting NAME sha256:HASH"),
        (f"a sha256:{_SECRET} scopes=infer", "line 1: expecting NAME sha256:HASH"),
        (f"\n{_SECRET}! sha256:{A.hex()} scopes=infer", "line 2: the name may have"),
        (f"a sha256:{A.hex().upper()} scopes=infer", "line 1: expecting NAME sha256:HASH"),
        (line(rest=""), "line 1: expecting scopes out of infer, control, metrics"),
        (line(rest=f"scopes=infer,{_SECRET}"), "line 1: expecting scopes out of"),
        (line(rest="scopes="), "line 1: expecting scopes out of"),
        (line(rest="scopes=infer scopes=control"), "line 1: scopes= is given twice: remove one"),
        (line(rest=f"scopes=infer {_SECRET}"), "line 1: expecting scopes=, models=, expires=,"),
        (line(rest="scopes=infer models="), "line 1: expecting models with commas"),
        (line(rest="scopes=infer models=a,,b"), "line 1: expecting models with commas"),
        (line(rest="scopes=infer expires=2027-02-30"), "line 1: expecting a day as 2027-01-31"),
        (line(rest="scopes=infer expires=tomorrow"), "line 1: expecting a day as 2027-01-31"),
        (line(rest="scopes=infer expires=20270101"), "line 1: expecting a day as 2027-01-31"),
        (line("a") + "\n" + line("a", B), "line 2: the name of another line: choose one"),
        (
            line("a") + "\n" + line("b"),
            "line 2: the token of another line; make a new one with `zmqtriton token new`",
        ),
    ],
)
def test_a_line_that_is_wrong_is_named_and_not_shown(text: str, problem: str) -> None:
    with pytest.raises(TokenFileError) as raised:
        token_file.Grant.parse_all(text)

    assert str(raised.value).startswith(problem)
    assert _SECRET not in str(raised.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(line() + "\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
@pytest.mark.row("L09")
def test_a_file_that_others_may_write_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)

    with pytest.raises(TokenFileError, match="others may write it"):
        token_file.Grant.read_all(str(file))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_refused(file: Path) -> None:
    os.chown(file, 4711, 4711)

    with pytest.raises(TokenFileError, match="others may write it"):
        token_file.Grant.read_all(str(file))


def test_what_is_no_file_of_text_is_refused(file: Path, tmp_path: Path) -> None:
    for path, problem in (
        (tmp_path / "missing", "No such file"),
        (tmp_path, "not a file"),
        (tmp_path / "pipe", "not a file"),
        (tmp_path / "bytes", "not UTF-8"),
        (tmp_path / "large", "at most"),
    ):
        if path.name == "pipe":
            os.mkfifo(path, 0o600)
        elif path.name == "bytes":
            path.write_bytes(b"\xff")
        elif path.name == "large":
            path.write_bytes(b"#" * (5 << 20))

        with pytest.raises(TokenFileError, match=problem):
            token_file.Grant.read_all(str(path))


@pytest.mark.parametrize(
    "limit", ["requests_per_second=x", "requests_per_second=-1", "concurrency=1.5", "concurrency="]
)
def test_a_limit_that_is_no_number_is_refused(limit: str) -> None:
    with pytest.raises(TokenFileError, match="expecting a"):
        token_file.Grant.parse_all(line(rest=f"{_SCOPES} {limit}"))
