from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from zmqtriton_floor import staging
from zmqtriton_floor.errors import InternalError, InvalidArgument


def written(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_files_are_written_where_nobody_may_go_but_the_server(tmp_path: Path) -> None:
    os.umask(previous := os.umask(0))
    os.umask(0)
    try:
        name = staging.stage(str(tmp_path), 7, {"file:1/model.py": b"x", "file:1//a/./b": b""})
    finally:
        os.umask(previous)

    root = tmp_path / "files" / name
    assert name.startswith("7-")
    assert {"1/model.py": b"x", "1/a/b": b""} == written(root)
    assert 0o700 == stat.S_IMODE(root.parent.stat().st_mode)
    # for stubs of other users, if the server lets them in
    modes = {stat.S_IMODE(p.stat().st_mode) for p in [root, root / "1", root / "1/a"]}
    assert {0o777} == modes
    assert {0o666} == {stat.S_IMODE((root / p).stat().st_mode) for p in written(root)}


def test_each_load_has_a_directory_of_its_own(tmp_path: Path) -> None:
    names = {staging.stage(str(tmp_path), 7, {"file:a": b"x"}) for _ in range(3)}

    assert 3 == len(names)


@pytest.mark.row("C71")
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("../x", "../x"),
        ("..", ".."),
        ("a/../../b", "../b"),
        ("1/./../../x", "../x"),
        ("/abs", "/abs"),
        ("//abs", "//abs"),
        ("../m/1/model.py", "../m/1/model.py"),
    ],
)
def test_a_path_that_leads_outside_is_refused(tmp_path: Path, name: str, path: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        staging.stage(str(tmp_path), 7, {"file:1/model.py": b"", f"file:{name}": b""})

    assert (
        f"Invalid file parameter 'file:{name}' with normalized path '{path}' must stay within "
        "model directory."
    ) == refused.value.text
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([""], "with normalized path '.' must name a file"),
        (["."], "with normalized path '.' must name a file"),
        (["a/.."], "with normalized path '.' must name a file"),
        (["1/"], "with normalized path '1' must name a file"),
        (["1/x/.."], "with normalized path '1' must name a file"),
        (["1/model.py", "1"], "'file:1/model.py' with normalized path '1/model.py' clashes with"),
        (["1/model.py/x", "1/model.py"], "clashes with 'file:1/model.py'"),
        (["1/model.py", "1//model.py"], "clashes with 'file:1/model.py'"),
        (["a\0b"], "its path must not contain NUL"),
        (["x" * 256], "its path is too long"),
        (["1/" + "a/" * 300 + "b"], "its path is too long"),
        (["/".join(["x" * 200] * 20)], "its path is too long"),
        (["../\ud800"], "its name is no text"),
        (["../" * 100_000], "its path is too long"),
        ([str(number) for number in range(5000)], "at most 4096 files, not 5000"),
    ],
)
def test_what_is_no_path_of_a_file_is_refused(tmp_path: Path, files: list[str], said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        staging.stage(str(tmp_path), 7, {f"file:{name}": b"" for name in files})

    assert said in refused.value.text
    assert len(refused.value.text) < 500
    assert [] == list(tmp_path.iterdir())


def test_what_is_wrong_is_left_for_the_supervisor_to_say(tmp_path: Path) -> None:
    outside = staging.arguments(str(tmp_path), 7, "m", {"config": "{}"}, {"file:../x": b""})
    alone = staging.arguments(str(tmp_path), 7, "m", {}, {"file:x": b""})

    assert outside["files"]["refusal"].startswith("Invalid file parameter 'file:../x'")
    assert {"model": "m", "parameters": {}, "files": {"refusal": ""}} == alone
    assert [] == list(tmp_path.iterdir())


def test_a_load_without_files_names_none(tmp_path: Path) -> None:
    assert {"model": "m", "parameters": {}} == staging.arguments(str(tmp_path), 7, "m", {}, {})


def test_nothing_is_left_where_the_disk_does_not_take_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: str, content: bytes) -> None:
        if content:
            raise OSError(28, "No space left on device")
        Path(path).touch()

    monkeypatch.setattr(staging, "_write", full)
    with pytest.raises(InternalError, match="No space left on device"):
        staging.stage(str(tmp_path), 7, {"file:1/a": b"", "file:1/b": b"x"})

    assert [] == list((tmp_path / "files").iterdir())


def test_what_nobody_loads_is_discarded(tmp_path: Path) -> None:
    name = staging.stage(str(tmp_path), 7, {"file:1/a": b""})

    staging.discard(str(tmp_path), name)

    assert [] == list((tmp_path / "files").iterdir())
