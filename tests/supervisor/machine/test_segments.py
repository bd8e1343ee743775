"""Segments of memory, and the files of regions."""

from __future__ import annotations

import fcntl
import gc
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zmqtriton.config.parameters import NO_QUOTA, Quota
from zmqtriton.host.capacity import available_bytes
from zmqtriton.supervisor.actions import OpenRegion
from zmqtriton.supervisor.machine.memory.region_files import (
    LentFile,
    RegionFiles,
    Suspects,
    is_file_of,
)
from zmqtriton.supervisor.machine.memory.segments import SegmentRegistry
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable, ZmqTritonError
from zmqtriton_floor.mappings import REGIONS_FROM
from zmqtriton_floor.reasons import Kind, Reason

# ---------------------------------------------------------------------------------------- segments
# Shared memory: how much each process may have, and that none of it stays.


MiB = 1 << 20


class World:
    """Keeps what is sent, with a duplicate of each descriptor, as a lifeline does."""

    def __init__(self, budget: int = 100 * MiB, max_segments: int = 50) -> None:
        self.sent: list[tuple[int, Any, int | None]] = []
        self._copies: list[int] = []
        self.segments = SegmentRegistry(budget, self._send, max_segments)

    def _send(self, serial: int, message: Any, descriptor: int | None) -> None:
        copy = None
        if descriptor is not None:
            copy = os.dup(descriptor)
            self._copies.append(copy)
        self.sent.append((serial, message, copy))

    def tell(
        self, serial: int, message: Any, quota: Quota = NO_QUOTA
    ) -> tuple[int, Any, int | None]:
        self.segments.handle_message(serial, message, quota)
        return self.sent[-1]

    def make(self, serial: int, number: int, size: int, quota: Quota = NO_QUOTA) -> str:
        """Why it was refused; empty if it was not."""
        _, made, descriptor = self.tell(serial, wire.CreateSegment(number, size), quota)
        assert made.segment == number
        assert (descriptor is None) == bool(made.code)
        assert made.code in (0, Unavailable.number)
        return str(made.text)

    def close(self) -> None:
        self.segments.close()
        for copy in self._copies:
            os.close(copy)


@pytest.fixture
def world() -> Iterator[World]:
    gc.collect()  # what earlier tests left must not be closed between the counts
    before = _segments_here()
    world = World()

    yield world

    world.close()
    assert before == _segments_here()


def _segments_here() -> int:
    """Return how many descriptors this process has of memory; threads open others meanwhile."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            count += os.readlink(f"/proc/self/fd/{number}").startswith("/memfd:")
    return count


def test_a_gradual_segment_counts_as_far_as_its_memory_is_made(world: World) -> None:
    _, made, descriptor = world.tell(5, wire.CreateSegment(1, 45 * MiB, is_gradual=1))
    assert made == wire.SegmentCreated(1, 0, "")
    assert descriptor is not None
    assert {5: 0} == world.segments.bytes_by_owner

    os.posix_fallocate(descriptor, 0, 10 * MiB)
    assert {5: 10 * MiB} == world.segments.bytes_by_owner
    assert "" == world.make(5, 2, 35 * MiB)
    assert world.make(5, 3, 6 * MiB).startswith(f"Tensors have {45 * MiB} bytes of memory by now")

    world.tell(5, wire.FreeSegment(1))
    assert {5: 35 * MiB} == world.segments.bytes_by_owner
    assert "" == world.make(5, 3, 6 * MiB)


def test_what_is_larger_than_there_may_ever_be_is_refused_though_it_is_gradual(
    world: World,
) -> None:
    _, refused, descriptor = world.tell(5, wire.CreateSegment(1, 51 * MiB, is_gradual=1))

    assert Unavailable.number == refused.code
    assert descriptor is None


def test_what_a_limited_model_has_counts_in_full_whatever_its_processes_say(world: World) -> None:
    _, made, descriptor = world.tell(5, wire.CreateSegment(1, 3 * MiB, b"", 1), Quota("m", 3 * MiB))
    assert (0, True) == (made.code, descriptor is not None)

    assert 3 * MiB == world.segments.bytes_of_model("m")
    assert "" != world.make(5, 2, 4096, Quota("m", 3 * MiB))


@pytest.mark.row("L22")
def test_the_processes_of_a_model_share_its_quota(world: World) -> None:
    mine, others = Quota("m", 3 * MiB), Quota("n", 3 * MiB)
    assert ("", "") == (world.make(5, 1, 2 * MiB, mine), world.make(6, 1, MiB, mine))

    assert world.make(6, 2, 4096, mine) == (
        f"Model 'm' may have {3 * MiB} bytes of shared memory (max_segment_bytes), "
        f"and has {3 * MiB}."
    )
    assert ("", {"m": 1}) == (world.make(7, 1, 3 * MiB, others), world.segments.refusals)
    world.tell(5, wire.FreeSegment(1))
    assert "" == world.make(6, 3, 2 * MiB, mine)


@pytest.mark.row("L22")
def test_what_a_dead_process_leaves_counts_until_it_is_gone(world: World) -> None:
    mine = Quota("m", MiB)
    world.make(5, 1, MiB, mine)

    world.segments.process_died(5)

    assert "" != world.make(6, 1, MiB, mine)
    world.segments.keep(5, ())
    assert (0, "") == (world.segments.bytes_of_model("m"), world.make(6, 2, MiB, mine))


@pytest.mark.row("L22")
def test_memory_on_a_gpu_takes_nothing_of_a_quota(world: World) -> None:
    world.tell(5, wire.CreateSegment(1, 9 * MiB, b"handle"), Quota("m", MiB))

    assert (0, 0) == (world.sent[-1][1].code, world.segments.bytes_of_model("m"))


@pytest.mark.parametrize("segment", [(5, 2), (6, 1), (0, 0)])
def test_only_what_is_registered_can_be_asked_for(world: World, segment: tuple[int, int]) -> None:
    world.make(5, 1, MiB)

    assert (7, wire.SegmentOpened(*segment, 0), None) == world.tell(7, wire.OpenSegment(*segment))


def test_nobody_gets_more_than_is_left_for_the_others(world: World) -> None:
    assert "" == world.make(5, 1, 50 * MiB)
    assert f"{50 * MiB} bytes of memory by now, of {100 * MiB}" in world.make(5, 2, MiB)

    assert "" == world.make(6, 1, 25 * MiB)
    assert "" != world.make(6, 2, MiB)
    # Whoever comes late still gets some.
    assert "" == world.make(7, 1, 12 * MiB)

    world.tell(5, wire.FreeSegment(1))
    assert "" == world.make(6, 2, MiB)


@pytest.mark.parametrize("size", [0, 2**62, 2**63 - 1])
def test_sizes_that_are_none_are_refused(world: World, size: int) -> None:
    assert "" != world.make(5, 1, size)
    assert 0 == world.segments.count


def test_there_are_not_too_many() -> None:
    world = World(max_segments=3)
    for number in (1, 2, 3):
        assert "" == world.make(5, number, 4096)

    assert "3 segments" in world.make(5, 4, 4096)
    world.close()


def test_a_python_without_memfd_makes_them_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")

    assert "" == world.make(5, 1, MiB)


def test_a_machine_that_cannot_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="vax"))

    assert "Function not implemented" == world.make(5, 1, MiB)


def test_available_memory_is_the_least_of_machine_and_groups(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    inner = groups / "system.slice" / "zmqtriton.service"
    inner.mkdir(parents=True)
    assert 8000 * 1024 == available_bytes(proc, groups)

    (proc / "self" / "cgroup").write_text("0::/system.slice/zmqtriton.service\n")
    assert 8000 * 1024 == available_bytes(proc, groups)

    (inner / "memory.max").write_text("max\n")
    (inner / "memory.current").write_text("1000\n")
    assert 8000 * 1024 == available_bytes(proc, groups)

    (inner.parent / "memory.max").write_text("5000000\n")
    (inner.parent / "memory.current").write_text("1000000\n")
    assert 4_000_000 == available_bytes(proc, groups)


def test_a_machine_that_tells_nothing_has_something(tmp_path: Path) -> None:
    assert 1 << 30 == available_bytes(tmp_path, tmp_path)


def test_memory_on_a_gpu_is_given_by_its_handle_and_takes_nothing_of_the_budget(
    world: World,
) -> None:
    large = 1000 * MiB

    made = world.tell(5, wire.CreateSegment(1, large, b"handle"))
    reply = world.tell(6, wire.OpenSegment(5, 1))

    assert (5, wire.SegmentCreated(1, 0, ""), None) == made
    assert (6, wire.SegmentOpened(5, 1, large, b"handle"), None) == reply
    assert {5: 0} == world.segments.bytes_by_owner
    # It ends with its owner, whoever reads it.
    world.segments.process_died(5)
    assert (6, wire.SegmentOpened(5, 1, 0), None) == world.sent[-1]


def test_a_handle_of_any_length_is_not_kept(world: World) -> None:
    _, made, _ = world.tell(5, wire.CreateSegment(1, MiB, bytes(257)))

    assert (Unavailable.number, 0) == (made.code, world.segments.count)


# ----------------------------------------------------------- regions of clients


class Regions:
    """Region 1 of a client, whose file is a memfd; the client has truncated it if that is said."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("client")
        os.truncate(self.descriptor, MiB)
        self.is_suspect = False
        self.is_certain = True

    def lend(self, number: int) -> LentFile | None:
        return LentFile(os.dup(self.descriptor), self.is_suspect) if number == 1 else None

    def suspect(self, numbers: Iterable[int]) -> Suspects:
        names = {1: "r"} if 1 in numbers else {}
        self.is_suspect = self.is_suspect or bool(names)
        return Suspects(names, self.is_certain)


REGION = REGIONS_FROM + 1
BUS_ERROR = Reason.of(Kind.CRASHED, "killed by SIGBUS", signal="SIGBUS")


@pytest.fixture
def regions(world: World) -> Iterator[Regions]:
    # one that tells which reads have failed; real ones need pages that the kernel took away
    regions = Regions()
    world.segments._regions = regions  # type: ignore[assignment]
    yield regions
    os.close(regions.descriptor)


def test_a_region_is_opened_for_those_that_ask_until_it_is_closed(
    world: World, regions: Regions
) -> None:
    serial, opened, descriptor = world.tell(6, wire.OpenSegment(5, REGION))

    assert (6, wire.SegmentOpened(5, REGION, MiB)) == (serial, opened)
    assert descriptor is not None
    assert os.path.sameopenfile(descriptor, regions.descriptor)
    missing = wire.OpenSegment(5, REGION + 1)
    assert (6, wire.SegmentOpened(*missing, 0), None) == world.tell(6, missing)

    world.segments.region_closed(1)
    assert (6, wire.SegmentOpened(5, REGION, 0), None) == world.sent[-1]


@pytest.mark.parametrize(("is_certain", "because"), [(True, "because"), (False, "perhaps because")])
def test_a_stub_that_a_truncated_region_has_killed_is_the_last_to_map_it(
    world: World, regions: Regions, is_certain: bool, because: str
) -> None:
    regions.is_certain = is_certain
    for serial in (6, 7):
        world.tell(serial, wire.OpenSegment(5, REGION))

    reason = world.segments.explain_death(6, BUS_ERROR)
    world.segments.process_died(6)

    text = f"killed by SIGBUS, {because} its client has truncated shared memory: 'r'"
    assert Reason.of(Kind.REGION_TRUNCATED, text, BUS_ERROR, regions="'r'") == reason
    assert (7, wire.SegmentOpened(5, REGION, 0), None) in world.sent
    opened = world.tell(7, wire.OpenSegment(5, REGION))[1]
    assert wire.SegmentOpened(5, REGION, MiB, is_copied=1) == opened


def test_another_death_is_no_regions_fault(world: World, regions: Regions) -> None:
    world.tell(6, wire.OpenSegment(5, REGION))
    killed = Reason.of(Kind.KILLED, "killed by SIGKILL", signal="SIGKILL")

    assert killed == world.segments.explain_death(6, killed)
    assert BUS_ERROR == world.segments.explain_death(7, BUS_ERROR)
    assert not regions.is_suspect


def test_the_handle_of_a_region_on_a_gpu_is_given_out_until_it_is_closed(world: World) -> None:
    world.segments.add_region_on_gpu(1, 64, b"handle")
    question = wire.OpenSegment(5, REGION)

    for reader in (6, 7):
        opened = wire.SegmentOpened(5, REGION, 64, b"handle")
        assert (reader, opened, None) == world.tell(reader, question)
    world.segments.process_died(7)

    assert {6} == world.segments.region_closed(1)
    assert (6, wire.SegmentOpened(5, REGION, 0), None) == world.sent[-1]
    assert (8, wire.SegmentOpened(5, REGION, 0), None) == world.tell(8, question)
    assert set() == world.segments.region_closed(1)


# ------------------------------------------------------------------------------------ region files
# Opening clients' shared memory: in /dev/shm, regular files, large enough, nothing else.


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
