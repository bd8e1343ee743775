"""The files of control groups, their place, the reasons why there can be none; and the report."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.supervisor.features.core_parts import core_parts
from zmqtriton.config.parameters import Quota, QuotaUse
from zmqtriton_standard.control_groups.groups import (
    ControlGroups,
    check_own_group,
    find_own_group,
    leave_reload,
)
from zmqtriton_standard.control_groups.report import QuotaReport

PID, STUB = 100, 200


def _text(file: Path) -> str:
    return file.read_text() if file.exists() else ""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def groups(own: Path) -> ControlGroups:
    """Groups in a plain directory, which keeps files that the kernel would remove."""
    groups = ControlGroups(own, PID)
    groups.begin()
    return groups


@pytest.mark.row("L22")
def test_the_server_leaves_its_group_to_groups(own: Path, groups: ControlGroups) -> None:
    assert str(PID) == _text(own / "zmqtriton-server" / "cgroup.procs")
    assert "+memory" == _text(own / "cgroup.subtree_control")


def test_groups_of_a_server_that_was_killed_are_removed(own: Path) -> None:
    (own / "zmqtriton-model-1-m" / "7").mkdir(parents=True)
    # the kernel has files next to groups, which plain directories with them do not lose
    (own / "zmqtriton-file").touch()

    ControlGroups(own, PID).begin()

    assert {own / "zmqtriton-file", own / "zmqtriton-server"} == {*own.glob("zmqtriton-*")}


@pytest.mark.row("L22")
def test_an_instance_has_the_limits_of_its_model(own: Path, groups: ControlGroups) -> None:
    groups.add(7, STUB, Quota("a/b", max_memory_bytes=4096))
    groups.add(8, STUB + 1, Quota("a/b"))

    model = own / "zmqtriton-model-1-a_b"
    assert "+memory" == _text(model / "cgroup.subtree_control")
    limits = {name: _text(model / "7" / name) for name in ("memory.max", "memory.oom.group")}
    assert {"memory.max": "4096", "memory.oom.group": "1"} == limits
    assert str(STUB) == _text(model / "7" / "cgroup.procs")
    assert "" == _text(model / "8" / "memory.max")


@pytest.mark.row("L22")
def test_cores_are_shared_by_weights_once_a_model_has_one(own: Path, groups: ControlGroups) -> None:
    groups.add(7, STUB, Quota("m"))
    assert "+memory" == _text(own / "cgroup.subtree_control")

    groups.set_cpu_weight("m", 250)

    assert "+cpu" == _text(own / "cgroup.subtree_control")
    assert "250" == _text(own / "zmqtriton-model-1-m" / "cpu.weight")
    assert "1000" == _text(own / "zmqtriton-server" / "cpu.weight")

    # the model is loaded anew without one
    groups.add(8, STUB, Quota("m"))
    assert "100" == _text(own / "zmqtriton-model-1-m" / "cpu.weight")


@pytest.mark.row("L22")
@pytest.mark.parametrize(
    ("events", "is_killed"),
    [
        ("oom 1\noom_kill 1\n", True),
        ("oom 0\noom_kill 0\n", False),
        # by the limit of a group above
        ("oom 0\noom_kill 1\n", False),
    ],
)
def test_a_kill_for_another_limit_is_not_this_one(
    own: Path, groups: ControlGroups, events: str, is_killed: bool
) -> None:
    groups.add(7, STUB, Quota("m", max_memory_bytes=4096))

    (own / "zmqtriton-model-1-m" / "7" / "memory.events").write_text(f"high 0\nmax 9\n{events}")

    assert is_killed == groups.was_killed_for_memory(7)
    assert not groups.was_killed_for_memory(8)


#: Run in a control group of its own: what the kernel makes of it.
_KERNEL = """
    import os, subprocess, sys, time
    from pathlib import Path
    from tests.supervisor.features.core_parts import core_parts
from zmqtriton.config.parameters import Quota, QuotaUse
    from zmqtriton_standard.control_groups.groups import prepare_control_groups

    groups = prepare_control_groups()
    own = groups.own
    stub = subprocess.Popen([sys.executable, "-c", "input(); b'x' * (99 << 20)"], stdin=-1)
    groups.add(5, stub.pid, Quota("m", max_memory_bytes=30 << 20))
    groups.set_cpu_weight("m", 300)
    assert not groups.was_killed_for_memory(5)
    stub.communicate(b"go\\n")
    assert stub.wait() == -9, stub.returncode
    assert groups.was_killed_for_memory(5)
    assert (own / "zmqtriton-model-1-m" / "cpu.weight").read_text() == "300\\n"
    groups.remove(5)
    groups.close()
    assert not [path for path in own.iterdir() if path.is_dir()], list(own.iterdir())
    assert str(os.getpid()) in (own / "cgroup.procs").read_text().split()
    print("done")
"""
_ROOT = Path("/sys/fs/cgroup")


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of the kernel's, where this process may make one."""
    controllers = _text(_ROOT / "cgroup.subtree_control").split()
    if os.geteuid() or not {"memory", "cpu"} <= set(controllers):
        pytest.skip("no control groups of version 2 may be made here")
    group = _ROOT / f"zmqtriton-test-{os.getpid()}"
    group.mkdir()
    yield group
    group.rmdir()


def test_the_kernel_ends_what_needs_too_much(group: Path) -> None:
    def enter() -> None:
        (group / "cgroup.procs").write_text("0")

    command = [sys.executable, "-c", textwrap.dedent(_KERNEL)]
    done = subprocess.run(
        command, preexec_fn=enter, capture_output=True, text=True, check=False, timeout=60
    )

    assert ("done\n", "") == (done.stdout, done.stderr)


def test_a_server_that_a_reload_has_started_has_groups_beside_those_of_the_one_before(
    own: Path, groups: ControlGroups
) -> None:
    (own / "zmqtriton-next-7").mkdir()

    beside = leave_reload(own, 300)

    assert own / "zmqtriton-next-300" == beside
    assert "300" == _text(beside / "cgroup.procs")
    assert not (own / "zmqtriton-next-7").exists()
    assert (own / "zmqtriton-server").exists()


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

    with pytest.raises(OSError, match="there are no control groups of version 2"):
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
    with pytest.raises(OSError, match=reason):
        check_own_group(machine.make(path, **how), PID)


@pytest.mark.parametrize("name", ["service", "cgroup.procs"])
def test_a_group_must_be_ours_to_write(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    group = machine.make("service")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != name)

    with pytest.raises(OSError, match="is not writable"):
        check_own_group(group, PID)


@pytest.mark.row("L22")
def test_the_root_belongs_to_everybody(machine: Machine) -> None:
    group = machine.make("root")
    (group / "cgroup.events").unlink()

    with pytest.raises(OSError, match="the root of all control groups"):
        check_own_group(group, PID)


# ----------------------------------------------------------------------- report
def describe(quotas: list[Quota], counts: list[dict[str, Any]] | None = None) -> Any:
    generations = {
        n: SimpleNamespace(blueprint=SimpleNamespace(quota=q)) for n, q in enumerate(quotas)
    }
    info = SimpleNamespace(quota_use=lambda model: QuotaUse(1, 2, 3, 4), quotas_kept_by=str)
    server = SimpleNamespace(generations=generations)
    return QuotaReport(core_parts(info=info, server=server)).describe(counts or [])["quotas"]


@pytest.mark.row("L22")
def test_each_limit_is_a_row() -> None:
    rows = describe([Quota("m", 100, 200, 300), Quota("m", 100, 200, 300), Quota("free")])

    assert [
        ("m", "max_segment_bytes", 100, 1, 2),
        ("m", "max_memory_bytes", 200, 3, 4),
        ("m", "cpu_weight", 300, None, None),
    ] == [tuple(row.values()) for row in rows]


@pytest.mark.row("L22")
def test_versions_share_a_pace_and_are_refused_each_by_itself() -> None:
    pace = {"per_second": 2.0, "last_second": 1, "refused": 3}
    counts: list[dict[str, Any]] = [
        {"model": "m", "pace": pace},
        {"model": "m", "pace": pace},
        {"model": "free"},
    ]

    [row] = describe([], counts)

    assert ("m", "max_executions_per_second", 2.0, 1, 6) == tuple(row.values())
