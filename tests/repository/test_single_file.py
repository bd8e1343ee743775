"""A model of a single file: what belongs to it of all that lies beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from zmqtriton.repository.place import scan_single_file
from zmqtriton_floor.errors import InternalError


def write(path: Path, text: str = "# code") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_it_is_version_1_in_the_directory_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "scale.py")

    model = scan_single_file("m", file)

    assert ("m", tmp_path, (1,), None) == (
        model.name,
        model.path,
        model.versions,
        model.config_path,
    )


@pytest.mark.parametrize(
    "name", ["scale.py", "helper.py", "package/inner.py", "config.pbtxt", "initial_state/zeros"]
)
def test_a_change_of_what_it_may_load_is_one_of_the_model(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / "scale.py")
    write(tmp_path / "package" / "__init__.py")
    write(tmp_path / "config.pbtxt", "max_batch_size: 1")
    before = scan_single_file("m", file)

    write(tmp_path / name, "something else")

    after = scan_single_file("m", file)
    assert before.fingerprint != after.fingerprint
    is_code = before.version_fingerprints != after.version_fingerprints
    assert is_code == (name != "config.pbtxt")


@pytest.mark.parametrize(
    "name", ["server.log", "folder/other.py", "package/table.csv", ".x.py.swp"]
)
def test_what_else_lies_there_does_not_count(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / "scale.py")
    write(tmp_path / "package" / "__init__.py")
    before = scan_single_file("m", file)

    write(tmp_path / name, "something else")

    assert before == scan_single_file("m", file)


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="Python model file not found"):
        scan_single_file("m", tmp_path / "scale.py")
