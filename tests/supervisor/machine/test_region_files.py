"""Opening clients' shared memory: in /dev/shm, regular files, large enough, nothing else."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from zmqtriton.supervisor.actions import OpenRegion
from zmqtriton.supervisor.machine.region_files import RegionFiles
from zmqtriton_floor.errors import Unavailable, ZmqTritonError


@pytest.fixture
def files(tmp_path: Path) -> Iterator[RegionFiles]:
    (tmp_path / "k").write_bytes(b"x" * 100)
    files = RegionFiles(str(tmp_path))
    yield files
    files.close_all()


def region_of(file: str = "k", offset: int = 0, size: int = 100, number: int = 1) -> OpenRegion:
    return OpenRegion(7, number, "r", f"/{file}", file, offset, size)


def test_a_file_is_open_until_it_is_closed(files: RegionFiles) -> None:
    assert not isinstance(files.open(region_of(offset=1, size=99)), ZmqTritonError)

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

    assert isinstance(error, ZmqTritonError)
    assert error.text == "failed to register shared memory region 'r': invalid args"
    assert files.descriptor(1) is None


def test_what_is_no_file_of_its_own_cannot_be_opened(files: RegionFiles, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "k")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "device").symlink_to("/dev/zero")

    for name in ("link", "directory", "fifo", "device", "missing"):
        error = files.open(region_of(name, size=1))
        assert isinstance(error, ZmqTritonError)
        assert error.text == f"Unable to open shared memory region: '/{name}'"


def test_clients_cannot_use_up_the_descriptors(
    files: RegionFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_limit", 1)

    assert not isinstance(files.open(region_of(number=1)), ZmqTritonError)
    assert isinstance(files.open(region_of(number=2)), Unavailable)


@pytest.mark.parametrize(
    ("mode", "is_others", "can_be_mapped"),
    [
        *((0o600, False, True), (0o644, False, True)),
        *((0o620, False, False), (0o602, False, False), (0o600, True, False)),
    ],
)
def test_stubs_map_what_only_the_servers_user_can_truncate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, is_others: bool, can_be_mapped: bool
) -> None:
    path = tmp_path / "k"
    path.write_bytes(b"x" * 100)
    path.chmod(mode)
    if is_others:
        owner = path.stat().st_uid
        real = os.fstat

        def of_another(descriptor: int) -> os.stat_result:
            fields = list(real(descriptor))
            fields[4] = owner + 4711
            return os.stat_result(fields)

        monkeypatch.setattr(os, "fstat", of_another)
    files, trusting = RegionFiles(str(tmp_path)), RegionFiles(str(tmp_path), trusts_all=True)

    assert can_be_mapped is files.open(region_of())
    assert trusting.open(region_of()) is True

    lent = files.lend(1)
    assert can_be_mapped == (lent is not None)
    for one in (lent, trusting.lend(1)):
        if one is not None:
            os.close(one.descriptor)
    files.close_all()
    trusting.close_all()


@pytest.mark.parametrize("is_read_only", [False, True])
def test_stubs_of_other_users_cannot_write(tmp_path: Path, is_read_only: bool) -> None:
    (tmp_path / "k").write_bytes(b"x" * 100)
    files = RegionFiles(str(tmp_path), trusts_all=True, is_read_only=is_read_only)
    files.open(region_of())

    lent = files.lend(1)

    assert lent is not None
    mode = fcntl.fcntl(lent.descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    assert (os.O_RDONLY if is_read_only else os.O_RDWR) == mode
    os.close(lent.descriptor)
    files.close_all()


def test_what_may_have_killed_a_stub_is_to_be_copied(tmp_path: Path) -> None:
    files = RegionFiles(str(tmp_path), trusts_all=True)
    for number, name in enumerate("abc", 1):
        (tmp_path / name).write_bytes(b"x" * 100)
        files.open(OpenRegion(7, number, name, f"/{name}", name, 0, 100))

    assert ({1: "a", 2: "b"}, False) == files.suspect([1, 2, 9])
    os.truncate(tmp_path / "b", 99)
    assert ({2: "b"}, True) == files.suspect([1, 2, 3])
    assert ({}, False) == files.suspect([])

    lent = [files.lend(number) for number in (1, 2, 3)]
    assert [True, True, False] == [one.is_copied for one in lent if one]
    for one in lent:
        os.close(one.descriptor if one else -1)
    files.close_all()
