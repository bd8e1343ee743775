"""Limits of processes where the kernel does not see to them: real processes, measured."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.floor.reasons import because
from tests.support.waiting import eventually
from zmqtriton import addons
from zmqtriton.config.quotas import Quota
from zmqtriton.supervisor.machine.processes.child import Child
from zmqtriton.supervisor.machine.quotas import (
    OomDetector,
    QuotaEnforcement,
    nice_value,
    own_memory_bytes,
)
from zmqtriton.supervisor.machine.segments import SegmentRegistry
from zmqtriton_floor import wire
from zmqtriton_floor.reasons import Reason

MIB = 1 << 20
#: Takes as many MiB as each line says; a fork has them, too, where it says `fork`.
_GROWING = """
import os, sys
kept = []
for line in sys.stdin:
    if line == "fork\\n" and os.fork() == 0:
        kept.append(b"y" * (60 << 20))
        print("forked", flush=True)
        sys.stdin.read()
        os._exit(0)
    if line != "fork\\n":
        kept.append(b"x" * (int(line) << 20))
        print("grown", flush=True)
"""


class World(NamedTuple):
    process: subprocess.Popen[str]
    enforcement: QuotaEnforcement
    segments: SegmentRegistry
    child: Child
    reports: list[tuple[int, Reason]]

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        self.process.stdout.readline()
        self.enforcement.poll()


@pytest.fixture
def world() -> Iterator[World]:
    reports: list[tuple[int, Reason]] = []
    children: dict[int, Child] = {}
    segments = SegmentRegistry(1 << 30, lambda serial, message, descriptor: None)
    enforcement = QuotaEnforcement(children, segments, lambda *what: reports.append(what))
    command = [sys.executable, "-c", _GROWING]
    with subprocess.Popen(
        command, stdin=-1, stdout=-1, text=True, start_new_session=True
    ) as process:
        child = Child(5, process.pid, quota=Quota("m", max_memory_bytes=100 * MIB, cpu_weight=50))
        children[5] = child
        enforcement.begin(child)
        yield World(process, enforcement, segments, child, reports)
        process.kill()
    segments.close()


@pytest.mark.row("L22")
def test_a_process_that_grows_beyond_its_limit_is_reported_once(world: World) -> None:
    world.tell("60")
    assert [] == world.reports
    assert 60 * MIB <= world.enforcement.use_of("m").memory_bytes < 100 * MIB

    world.tell("60")
    world.enforcement.poll()

    [(serial, reason)] = world.reports
    used = world.enforcement.use_of("m").memory_bytes
    assert (5, f"it used {used} of at most {100 * MIB} bytes (max_memory_bytes)") == (
        serial,
        reason.text,
    )
    assert 1 == world.enforcement.use_of("m").memory_excesses


@pytest.mark.row("L22")
def test_the_memory_of_descendants_and_of_segments_counts(world: World) -> None:
    world.segments.handle_message(5, wire.CreateSegment(1, 30 * MIB))
    world.enforcement.poll()
    before = world.enforcement.use_of("m").memory_bytes
    assert before > 30 * MIB

    world.tell("fork")

    assert world.enforcement.use_of("m").memory_bytes >= before + 60 * MIB


@pytest.mark.row("L22")
def test_the_dead_have_no_memory(world: World) -> None:
    world.process.kill()
    world.process.wait()

    killed = because("killed by SIGKILL")
    assert killed == world.enforcement.end(world.child, killed)
    world.enforcement.poll()

    assert 0 == world.enforcement.use_of("m").memory_bytes
    assert 0 == own_memory_bytes(world.process.pid)


@pytest.mark.row("L22")
def test_a_weight_becomes_a_nice_value(world: World) -> None:
    usual = os.getpriority(os.PRIO_PROCESS, 0)

    eventually(lambda: os.getpriority(os.PRIO_PROCESS, world.process.pid) == usual + 3, 60)
    assert usual == os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.row("L22")
@pytest.mark.parametrize(
    ("weight", "nice"), [(100, 0), (125, -1), (80, 1), (200, -3), (1, 19), (10_000, -20)]
)
def test_nice_values_have_the_kernels_ratio(weight: int, nice: int) -> None:
    assert nice == nice_value(weight)


# ------------------------------------------------------------------- out of memory


KILLED = "killed by SIGKILL"
TOLD = "killed by SIGKILL, by the kernel: out of memory"


class Machine:
    """A machine whose files a test writes."""

    def __init__(self, directory: Path, group: str, counter: str) -> None:
        self.proc, self.groups = directory / "proc", directory / "cgroup"
        self.counter = directory / counter
        for path in (self.proc / "self", self.groups, self.counter.parent):
            path.mkdir(parents=True, exist_ok=True)
        (self.proc / "self" / "cgroup").write_text(group)
        (self.proc / "vmstat").write_text("pgfault 7\noom_kill 0\n")
        self.kill(3)
        self.watched = OomDetector(self.proc, self.groups)

    def kill(self, count: int) -> None:
        self.counter.write_text(f"low 0\noom_kill {count}\noom_group_kill 0\n")


@pytest.fixture(
    params=[
        ("0::/a/b\n", "cgroup/a/b/memory.events"),
        ("4:cpu,memory:/x\n0::/\n", "cgroup/memory/x/memory.oom_control"),
        ("1:cpu:/x\n", "proc/vmstat"),
        ("", "proc/vmstat"),
    ],
    ids=["version 2", "version 1", "no group", "no controllers"],
)
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    return Machine(tmp_path, *request.param)


def test_a_death_by_the_kernel_for_want_of_memory_is_told(machine: Machine) -> None:
    machine.kill(4)

    assert TOLD == machine.watched.explain_death(because(KILLED), 1.0).text


def test_a_death_that_is_found_after_the_counter_was_looked_at_is_told(machine: Machine) -> None:
    machine.kill(4)
    machine.watched.poll(1.0)

    assert TOLD == machine.watched.explain_death(because(KILLED), 2.0).text


def test_who_is_killed_long_after_another_had_no_memory_is_not_blamed(machine: Machine) -> None:
    machine.kill(4)
    machine.watched.poll(1.0)

    assert KILLED == machine.watched.explain_death(because(KILLED), 60.0).text


def test_kills_from_before_the_start_do_not_count(machine: Machine) -> None:
    assert KILLED == machine.watched.explain_death(because(KILLED), 0.0).text


def test_who_died_of_something_else_was_not_killed_for_memory(machine: Machine) -> None:
    machine.kill(4)

    exited = because("exited with status 1")
    assert exited == machine.watched.explain_death(exited, 1.0)


def test_where_nothing_can_be_read_nothing_is_told(tmp_path: Path) -> None:
    assert KILLED == OomDetector(tmp_path, tmp_path).explain_death(because(KILLED), 1.0).text


def test_without_the_add_on_of_control_groups_the_server_looks_itself(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addons, "part", lambda name: "")

    world.enforcement.prepare_groups()

    assert "the add-on 'control_groups' is not installed" in world.enforcement.means
