from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.reports import Reports
from zmqtriton_extras.storage import mirror as module
from zmqtriton_extras.storage.mirror import Mirror
from zmqtriton_extras.storage.tests.fake_store import FakeStore
from zmqtriton_extras.storage.trees import build_tree
from zmqtriton_floor.errors import InternalError
from zmqtriton_standard.environments.reports import ByteCounter


def copied(mirror: Mirror, number: int, store: Any) -> str:
    async def run() -> str:
        tree = build_tree(await store.list_objects("m"))
        return await mirror.copy_model(number, "m", "s3://b", tree, store)

    return asyncio.run(run())


def silent_mirror(directory: Path) -> Mirror:
    return Mirror(str(directory), lambda number, model: Reports())


def files(directory: str) -> dict[str, bytes]:
    root = Path(directory)
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_a_copy_has_every_file_and_programs_can_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK_BYTES", 1000)
    large = bytes(range(256)) * 40
    contents = {"1/model.py": b"x", "1/weights": large, "empty": b"", "bin/run": b"#!/bin/sh\n"}
    store = FakeStore({f"m/{name}": data for name, data in contents.items()})

    directory = copied(silent_mirror(tmp_path), 7, store)

    assert str(tmp_path / "7" / "m") == directory
    assert contents == files(directory)
    assert os.access(f"{directory}/bin/run", os.X_OK)
    assert not os.access(f"{directory}/1/model.py", os.X_OK) or os.geteuid() == 0
    assert ["7"] == os.listdir(tmp_path)


def test_a_long_copy_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ByteCounter, "LOG_EVERY_S", 0.0)
    store = FakeStore({"m/1/model.py": b"x" * 100, "m/1/weights": b"y" * 300})
    said: dict[tuple[int, str], Reports] = {}

    def report_of(number: int, model: str) -> Reports:
        return said.setdefault((number, model), Reports())

    copied(Mirror(str(tmp_path), report_of), 1, store)

    [(of, reports)] = said.items()
    assert (1, "m") == of
    assert ("I", "Copying s3://b/m: 100 %") == reports.lines[-1]
    assert 2 == len(reports.lines)
    assert [0.0, 1.0] == [reports.steps[0].share, reports.steps[-1].share]


@pytest.mark.row("F21")
def test_the_next_copy_fetches_what_has_changed_and_shares_the_rest(tmp_path: Path) -> None:
    store = FakeStore({"m/1/model.py": b"old", "m/1/weights": b"w", "m/1/notes": b"n"})
    mirror = silent_mirror(tmp_path)
    first = copied(mirror, 1, store)
    # A model may write where it lies; that is not what the store has.
    Path(first, "1/notes").write_bytes(b"changed here")
    store.contents["m/1/model.py"] = b"new"
    store.reads.clear()

    second = copied(mirror, 2, store)

    assert ["m/1/model.py", "m/1/notes"] == sorted(store.reads)
    assert {"1/model.py": b"new", "1/notes": b"n", "1/weights": b"w"} == files(second)
    assert b"old" == Path(first, "1/model.py").read_bytes()
    assert Path(first, "1/weights").samefile(Path(second, "1/weights"))


@pytest.mark.row("F21")
@pytest.mark.parametrize("change", ["another content", "another object"])
def test_what_changes_meanwhile_is_no_copy(tmp_path: Path, change: str) -> None:
    store = FakeStore({"m/1/model.py": b"old"})

    def meanwhile() -> None:
        if store.listings:
            name = "m/1/model.py" if change == "another content" else "m/config.pbtxt"
            store.contents[name] = b"new"

    objects = asyncio.run(store.list_objects("m"))
    anything: Any = store
    store.meanwhile = meanwhile

    async def run() -> str:
        mirror = silent_mirror(tmp_path)
        return await mirror.copy_model(1, "m", "s3://b", build_tree(objects), anything)

    assert "" == asyncio.run(run())
    assert [] == os.listdir(tmp_path)


def test_what_does_not_fit_on_the_disk_is_refused_before_it_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": (64 << 20) + 5})
    monkeypatch.setattr("zmqtriton_extras.storage.mirror.shutil.disk_usage", lambda path: usage)
    store = FakeStore({"m/1/weights": b"123456"})

    with pytest.raises(InternalError, match="s3://b/m needs 6 bytes here, 5 are free"):
        copied(silent_mirror(tmp_path), 1, store)

    assert ([], []) == (store.reads, os.listdir(tmp_path))


def test_what_a_killed_process_left_unfinished_goes(tmp_path: Path) -> None:
    for name in ("3.new", "2.gone", "1"):
        (tmp_path / name).mkdir()

    silent_mirror(tmp_path)

    assert ["1"] == os.listdir(tmp_path)
