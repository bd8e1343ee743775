from __future__ import annotations

from pathlib import Path

import pytest

from tests.floor.reasons import because
from zmqtriton.supervisor.machine.quotas.enforcement import OomDetector

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
