"""The directory that a script's server works in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zmqtriton_extras.pytriton.utils.workspace import Workspace


def test_a_directory_that_is_there_already_is_nobody_s_to_remove(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()

    with pytest.raises(FileExistsError):
        Workspace(tmp_path)

    assert (tmp_path / "mine").exists()


def test_a_directory_that_is_named_is_made_and_removed(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "new" / "workspace")
    assert workspace.exists()

    workspace.clean()

    assert not workspace.exists()


def test_one_without_a_name_ends_with_its_object() -> None:
    workspace = Workspace()
    path = workspace.path
    assert path.is_dir()

    del workspace

    assert not path.exists()


def test_a_fork_leaves_it_to_who_has_made_it() -> None:
    workspace = Workspace()
    path = workspace.path

    child = os.fork()
    if not child:
        del workspace
        os._exit(0 if path.exists() else 1)

    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
