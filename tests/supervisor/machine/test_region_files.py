"""Opening clients' shared memory: in /dev/shm, regular files, large enough, nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from zmqtriton.supervisor.actions import OpenRegion
from zmqtriton.supervisor.machine.region_files import RegionFiles
from zmqtriton_floor.errors import Unavailable


@pytest.fixture
def files(tmp_path: Path) -> Iterator[RegionFiles]:
    (tmp_path / "k").write_bytes(b"x" * 100)
    files = RegionFiles(str(tmp_path))
    yield files
    files.close_all()


def region_of(file: str = "k", offset: int = 0, size: int = 100, number: int = 1) -> OpenRegion:
    return OpenRegion(7, number, "r", f"/{file}", file, offset, size)


def test_a_file_is_open_until_it_is_closed(files: RegionFiles) -> None:
    assert files.open(region_of(offset=1, size=99)) is None

    descriptor = files.descriptor(1)
    assert descriptor is not None
    assert b"x" * 100 == os.pread(descriptor, 1000, 0)
    files.close(1)
    assert files.descriptor(1) is None
    with pytest.raises(OSError):  # noqa: PT011 - it is closed
        os.fstat(descriptor)


@pytest.mark.parametrize(("offset", "size"), [(0, 101), (1, 100), (100, 1), (200, 1)])
def test_a_region_lies_within_its_file(files: RegionFiles, offset: int, size: int) -> None:
    error = files.open(region_of(offset=offset, size=size))

    assert error is not None
    assert error.text == "failed to register shared memory region 'r': invalid args"
    assert files.descriptor(1) is None


def test_what_is_no_file_of_its_own_cannot_be_opened(files: RegionFiles, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "k")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "device").symlink_to("/dev/zero")

    for name in ("link", "directory", "fifo", "device", "missing"):
        error = files.open(region_of(name, size=1))
        assert error is not None
        assert error.text == f"Unable to open shared memory region: '/{name}'"


def test_clients_cannot_use_up_the_descriptors(
    files: RegionFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_limit", 1)

    assert files.open(region_of(number=1)) is None
    assert isinstance(files.open(region_of(number=2)), Unavailable)
