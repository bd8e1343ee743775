"""The commit of a checkout, and of an installation."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import find_tool
from zmqtriton.commit import full_version, read_checkout, read_installation
from zmqtriton_floor import __version__


def git(root: Path, *words: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@y")
    command = [find_tool("git"), "-C", str(root), *identity, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_checkout_has_its_commit_and_says_if_files_differ(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-q", "-m", "x")
    git(tmp_path, "tag", "-a", "v1", "-m", "x")
    first = git(tmp_path, "rev-parse", "HEAD")[:12]

    assert first == read_checkout(tmp_path)
    (tmp_path / "file").write_text("2")
    assert f"{first}-dirty" == read_checkout(tmp_path)


def test_without_a_repository_nothing_is_known(tmp_path: Path) -> None:
    assert "" == read_checkout(tmp_path / "none")


@pytest.mark.parametrize(
    ("recorded", "commit"),
    [
        ('{"url": "https://x", "vcs_info": {"commit_id": "0123456789abcdef"}}', "0123456789ab"),
        ('{"url": "file:///x.whl", "archive_info": {}}', ""),
        ("no JSON", ""),
        (None, ""),
    ],
)
def test_an_installation_has_what_pip_has_recorded(
    recorded: str | None, commit: str, tmp_path: Path
) -> None:
    directory = tmp_path / "zmqtriton-0.1.0.dist-info"
    directory.mkdir()
    if recorded is not None:
        (directory / "direct_url.json").write_text(recorded)

    assert commit == read_installation(tmp_path)


def test_the_full_version_begins_with_the_version() -> None:
    assert re.fullmatch(re.escape(__version__) + r"(\+[0-9a-f]{7,}(-dirty)?)?", full_version())
