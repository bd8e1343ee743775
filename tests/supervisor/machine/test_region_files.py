"""Opening clients' shared memory: in /dev/shm, regular files, large enough, nothing else."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from zmqtriton.supervisor.actions import OpenRegion
from zmqtriton.supervisor.machine.region_files import RegionFiles, is_file_of
from zmqtriton_floor.errors import Unavailable, ZmqTritonError

ROOT, UNKNOWN = 0, -1


@pytest.fixture
def files(tmp_path: Path) -> Iterator[RegionFiles]:
    (tmp_path / "k").write_bytes(b"x" * 100)
    files = RegionFiles(str(tmp_path))
    yield files
    files.close_all()


def region_of(
    file: str = "k", offset: int = 0, size: int = 100, number: int = 1, user: int = ROOT
) -> OpenRegion:
    return OpenRegion(7, number, "r", f"/{file}", file, offset, size, user)


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


@pytest.mark.parametrize(
    ("owner", "mode", "user", "server", "is_open"),
    [
        # the server is root: a client gets its own files, and those of everybody
        (1000, 0o600, 1000, ROOT, True),
        (1000, 0o666, 1001, ROOT, True),
        (ROOT, 0o600, 1000, ROOT, False),
        (1000, 0o600, 1001, ROOT, False),
        (ROOT, 0o644, 1000, ROOT, False),
        (ROOT, 0o622, 1000, ROOT, False),
        (ROOT, 0o660, 1000, ROOT, False),
        (ROOT, 0o606, 1000, ROOT, False),
        (1000, 0o600, ROOT, ROOT, True),
        (ROOT, 0o600, ROOT, ROOT, True),
        (ROOT, 0o600, UNKNOWN, ROOT, False),
        (1000, 0o600, UNKNOWN, ROOT, False),
        (1000, 0o666, UNKNOWN, ROOT, True),
        # it is another user, and may open the file
        (1000, 0o600, 1000, 1000, True),
        (1000, 0o600, 1001, 1000, False),
        (1001, 0o660, 1001, 1000, True),
        (1001, 0o660, 1002, 1000, False),
        (1001, 0o666, 1002, 1000, True),
        (1000, 0o600, UNKNOWN, 1000, True),
    ],
)
def test_a_client_gets_what_it_could_open_itself(
    owner: int, mode: int, user: int, server: int, is_open: bool
) -> None:
    status = os.stat_result((mode, 0, 0, 1, owner, owner, 100, 0, 0, 0))

    assert is_open is is_file_of(status, user, server)


def test_a_file_that_a_client_could_not_open_is_one_that_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "k").write_bytes(b"x" * 100)
    monkeypatch.setattr(os, "geteuid", lambda: ROOT)
    owner = (tmp_path / "k").stat().st_uid
    before = len(os.listdir("/proc/self/fd"))
    files, trusting = RegionFiles(str(tmp_path)), RegionFiles(str(tmp_path), trusts_all=True)

    for _ in range(3):
        error = files.open(region_of(user=owner + 1))
        missing = files.open(region_of("missing", user=owner + 1))

    assert isinstance(error, ZmqTritonError)
    assert isinstance(missing, ZmqTritonError)
    assert type(error) is type(missing)
    assert error.text == missing.text.replace("missing", "k")
    assert before == len(os.listdir("/proc/self/fd"))
    assert [f"user {owner + 1}" in one.getMessage() for one in caplog.records] == [True]
    assert trusting.open(region_of(user=owner + 1)) is True
    trusting.close_all()


def test_clients_cannot_use_up_the_descriptors(
    files: RegionFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_limit", 1)

    assert not isinstance(files.open(region_of(number=1)), ZmqTritonError)
    assert isinstance(files.open(region_of(number=2)), Unavailable)


@pytest.mark.parametrize(
    ("mode", "is_others", "can_be_mapped"),
    [
        (0o600, False, True),
        (0o644, False, True),
        (0o620, False, False),
        (0o602, False, False),
        (0o600, True, False),
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
        files.open(OpenRegion(7, number, name, f"/{name}", name, 0, 100, ROOT))

    assert ({1: "a", 2: "b"}, False) == files.suspect([1, 2, 9])
    os.truncate(tmp_path / "b", 99)
    assert (({2: "b"}, True), ({}, False)) == (files.suspect([1, 2, 3]), files.suspect([]))

    lent = [files.lend(number) for number in (1, 2, 3)]
    assert [True, True, False] == [one.is_copied for one in lent if one]
    for one in lent:
        os.close(one.descriptor if one else -1)
    files.close_all()
