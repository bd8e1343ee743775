"""The file of tokens when a server starts: errors that end it, and what is warned of."""

from __future__ import annotations

from pathlib import Path

import pytest

from zmqtriton.options import Options, parse
from zmqtriton.supervisor.machine import secrets
from zmqtriton.supervisor.machine.secrets import SecretError
from zmqtriton_floor.access import token_file

LINE = f"a sha256:{token_file.digest('a').hex()} scopes=infer\n"
LOCAL = ("--http-address=127.0.0.1", "--grpc-address=localhost")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(LINE)
    path.chmod(0o600)
    return path


def options(path: Path, *more: str) -> Options:
    return parse(["--model-repository=/m", f"--tokens={path}", *more])


def test_without_the_option_nothing_is_read() -> None:
    secrets.check_tokens(parse(["--model-repository=/m"]))


def test_a_file_that_cannot_be_used_is_an_error_that_names_the_option(path: Path) -> None:
    path.write_text(LINE + "b\n")

    with pytest.raises(SecretError, match=rf"^--tokens={path}: line 2: expecting"):
        secrets.check_tokens(options(path))


@pytest.mark.parametrize(
    ("more", "warnings"),
    [
        (LOCAL, []),
        (("--grpc-address=::1", "--http-address=127.0.0.2"), []),
        (LOCAL[:1], ["tokens come unencrypted to 0.0.0.0"]),
        (("--allow-grpc=false", LOCAL[0]), []),
    ],
)
def test_tokens_that_travel_unencrypted_are_warned_of(
    path: Path, caplog: pytest.LogCaptureFixture, more: tuple[str, ...], warnings: list[str]
) -> None:
    secrets.check_tokens(options(path, *more))

    assert warnings == [record.getMessage().partition(",")[0] for record in caplog.records]


@pytest.mark.row("L09")
def test_what_others_may_read_or_what_is_empty_is_warned_of(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.chmod(0o644)
    secrets.check_tokens(options(path, *LOCAL))
    path.chmod(0o600)
    path.write_text("# nobody\n")
    secrets.check_tokens(options(path, *LOCAL))

    readable, empty = (record.getMessage() for record in caplog.records)
    assert readable.endswith("all users of this machine may read it; chmod 600 it")
    assert empty.endswith("there is no token, so nobody gets in")
