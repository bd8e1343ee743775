"""The place of a runtime directory: none where it would be taken away under the server."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

import pytest

from zmqtriton import runtime_places


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with /run and /tmp, and no word in the environment."""
    for name in ("run/user", "tmp"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(runtime_places, "_ROOT", tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    for name in ("TMPDIR", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def user(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a user who is not root and has logged in."""
    mine = root / "run" / "user" / "1234"
    mine.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(runtime_places, "_is_ours", lambda path: path == mine)
    named = pwd.struct_passwd(("ann", "x", 1234, 1234, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda number: named)
    return mine


def test_a_user_s_own_directory_is_taken_only_if_it_outlasts_the_session(
    root: Path, user: Path
) -> None:
    assert root / "tmp" == runtime_places.preferred()

    (root / "var/lib/systemd/linger").mkdir(parents=True)
    (root / "var/lib/systemd/linger/ann").touch()

    assert user == runtime_places.preferred()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's place is there without a login")
def test_root_has_its_own_in_run(root: Path) -> None:
    assert root / "run" == runtime_places.preferred()

    (root / "run" / "user").rmdir()
    (root / "run").rmdir()
    assert root / "tmp" == runtime_places.preferred()


def test_who_names_a_directory_for_temporary_files_gets_it(
    root: Path, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(root / "tmp"))
    (root / "var/lib/systemd/linger").mkdir(parents=True)
    (root / "var/lib/systemd/linger/ann").touch()

    assert root / "tmp" == runtime_places.preferred()


def test_servers_are_looked_for_wherever_they_may_be(root: Path, user: Path) -> None:
    expected = {user, root / "run", root / "tmp"}

    assert expected <= set(runtime_places.places())
    assert len(runtime_places.places()) == len(set(runtime_places.places()))
    assert runtime_places.preferred() in runtime_places.places()
