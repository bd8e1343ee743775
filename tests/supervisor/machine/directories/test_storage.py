from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from zmqtriton.supervisor.machine.directories.claims import claim_storage
from zmqtriton.supervisor.machine.directories.runtime import DirectoryError


def test_directories_need_none() -> None:
    assert None is claim_storage(())


@pytest.mark.addons
@pytest.mark.row("F21")
def test_without_the_library_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(DirectoryError, match=r"'s3://b/m' needs .* pip install obstore"):
        claim_storage(("s3://b/m",))


@pytest.mark.addons
def test_a_url_of_another_form_is_refused_and_so_is_a_directory_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with pytest.raises(DirectoryError, match="is not of the form s3://"):
        claim_storage(("s3://",))

    monkeypatch.setenv("TRITON_AWS_MOUNT_DIRECTORY", str(tmp_path / "missing"))
    with pytest.raises(DirectoryError, match=r"cannot be kept in '.*missing': No such file"):
        claim_storage(("s3://b",))


@pytest.mark.addons
def test_it_is_private_and_where_the_variable_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setenv("TRITON_AWS_MOUNT_DIRECTORY", str(tmp_path))

    directory = claim_storage(("s3://b",))

    assert directory is not None
    assert (tmp_path, 0o700) == (directory.path.parent, directory.path.stat().st_mode & 0o777)
    directory.remove()
    assert [] == list(tmp_path.iterdir())
