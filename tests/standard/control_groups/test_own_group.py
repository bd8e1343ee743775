"""The place of control groups, and the reasons why there can be none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zmqtriton.supervisor.machine.processes.quotas import NoControlGroups
from zmqtriton_standard.control_groups.groups import check_own_group, find_own_group

PID = os.getpid()


class Machine:
    """The files by which the kernel describes control groups."""

    def __init__(self, directory: Path) -> None:
        self.proc, self.mounted = directory / "proc", directory / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        self.mount("/")

    def mount(self, root: str, kind: str = "cgroup2") -> None:
        line = f"30 23 0:26 {root} {self.mounted} rw,nosuid shared:4 - {kind} {kind} rw\n"
        (self.proc / "self" / "mountinfo").write_text(f"22 1 8:1 / / rw - ext4 /dev/sda rw\n{line}")

    def enter(self, path: str) -> None:
        (self.proc / "self" / "cgroup").write_text(f"1:name=systemd:/x\n0::{path}\n")

    def make(self, path: str, procs: str = "", controllers: str = "cpu io memory pids") -> Path:
        group = self.mounted / path.lstrip("/")
        group.mkdir(parents=True)
        (group / "cgroup.events").write_text("populated 1\n")
        (group / "cgroup.controllers").write_text(f"{controllers}\n")
        (group / "cgroup.procs").write_text(procs or f"{PID}\n")
        return group


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.row("L22")
@pytest.mark.parametrize(
    ("root", "path", "group"),
    [
        ("/", "/system.slice/zmqtriton", "system.slice/zmqtriton"),
        ("/", "/", ""),
        ("/docker/1234", "/docker/1234", ""),
        ("/docker/1234", "/docker/1234/inner", "inner"),
    ],
)
def test_the_own_group_is_found(machine: Machine, root: str, path: str, group: str) -> None:
    machine.mount(root)
    machine.enter(path)

    assert machine.mounted / group == find_own_group(machine.proc)


@pytest.mark.row("L22")
def test_version_1_has_none(machine: Machine) -> None:
    machine.mount("/", kind="cgroup")
    machine.enter("/")

    with pytest.raises(NoControlGroups, match="there are no control groups of version 2"):
        find_own_group(machine.proc)


@pytest.mark.row("L22")
def test_a_group_of_its_own_will_do(machine: Machine) -> None:
    check_own_group(machine.make("service"), PID)


@pytest.mark.row("L22")
@pytest.mark.parametrize(
    ("path", "how", "reason"),
    [
        ("a", {"controllers": "cpu pids"}, "does not have the controller memory"),
        ("a", {"procs": f"{PID}\n1\n"}, r"has other processes \(1\)"),
        ("zmqtriton.service", {}, "systemd has not delegated"),
    ],
)
def test_the_reason_is_told(machine: Machine, path: str, how: dict[str, str], reason: str) -> None:
    if os.geteuid() and path.endswith(".service"):
        pytest.skip("what belongs to another user than root is delegated")
    with pytest.raises(NoControlGroups, match=reason):
        check_own_group(machine.make(path, **how), PID)


@pytest.mark.parametrize("name", ["service", "cgroup.procs"])
def test_a_group_must_be_ours_to_write(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    group = machine.make("service")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != name)

    with pytest.raises(NoControlGroups, match="is not writable"):
        check_own_group(group, PID)


@pytest.mark.row("L22")
def test_the_root_belongs_to_everybody(machine: Machine) -> None:
    group = machine.make("root")
    (group / "cgroup.events").unlink()

    with pytest.raises(NoControlGroups, match="the root of all control groups"):
        check_own_group(group, PID)
