"""A machine's processes, memory, cores, GPUs and kernel, read from what is prepared and judged."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.standard.tools.doctor.findings import MIB, NOBODY, disk, only, texts, write
from tests.support.waiting import eventually
from zmqtriton.host.gpus import NvmlError
from zmqtriton.options import parse
from zmqtriton_standard.tools.doctor import machine, programs

pytestmark = pytest.mark.slow


@contextmanager
def child(command: Sequence[str] = ("sleep", "60"), **more: Any) -> Iterator[int]:
    with subprocess.Popen(command, **more) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def limits(root: Path, **values: object) -> None:
    """Prepare the limits of process 7 of another user than root."""
    lines = [f"Max {name.replace('_', ' '):21} {value} unlimited" for name, value in values.items()]
    write(root / "proc/7/limits", "\n".join(lines))
    write(root / "proc/7/status", "Uid:\t1000\t1000\n")


# ------------------------------------------------------------------ processes


@pytest.mark.row("L13")
def test_few_descriptors() -> None:
    with child() as pid:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (1024, 1024))
        few = only(machine.judge_limits(pid, {}))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (100, 100))
        hardly_any = only(machine.judge_limits(pid, {}))

    expected = "a process may have {} file descriptors, which is few"
    assert f"warning: {expected.format(1024)}" == few
    assert f"error: {expected.format(100)}" == hardly_any


def test_descriptors_that_are_nearly_used_up() -> None:
    code = "import time, os; f=[os.dup(0) for _ in range(50)]; print(flush=True); time.sleep(60)"
    command = [sys.executable, "-S", "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        pid = holder.pid
        well = texts(machine.judge_limits(pid, {pid: "http"}))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (60, 60))
        few, full = texts(machine.judge_limits(pid, {pid: "http"}))
        holder.kill()

    assert [] == well
    assert "error: a process may have 60 file descriptors" in few
    assert full.startswith(f"warning: http (pid {pid}) uses 5")
    assert full.endswith("of 60 file descriptors")


def _allow_few_processes() -> None:
    resource.setrlimit(resource.RLIMIT_NPROC, (50, 50))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_few_processes_for_a_user_who_is_not_root() -> None:
    with child(user=NOBODY, preexec_fn=_allow_few_processes) as pid:
        text = only(machine.judge_limits(pid, {}))
    with child(preexec_fn=_allow_few_processes) as pid:
        of_root = texts(machine.judge_limits(pid, {}))

    assert "warning: this user may have 50 processes and threads, which is few" == text
    assert [] == of_root, "root may have as many as it likes"


def test_unlimited_limits_are_well(tmp_path: Path) -> None:
    limits(tmp_path, open_files="unlimited", processes="unlimited", locked_memory="unlimited")

    assert [] == texts(machine.judge_limits(7, {7: "a"}, tmp_path))


def test_a_process_that_is_stopped() -> None:
    with child() as pid:
        running = texts(machine.judge_stopped({pid: "broker"}))
        os.kill(pid, signal.SIGSTOP)
        stopped = eventually(
            lambda: texts(machine.judge_stopped({pid: "broker"})), 10, "it is stopped"
        )

    assert [] == running
    assert [f"error: broker (pid {pid}) is stopped by a signal or a debugger"] == stopped


def test_a_process_that_waits_for_a_disk(tmp_path: Path) -> None:
    write(tmp_path / "proc/8/status", "Name:\tx\nState:\tD (disk sleep)\n")

    text = only(machine.judge_stopped({8: "broker"}, tmp_path))

    assert "note: broker (pid 8) waits for a disk or a driver" == text


def test_memory_in_swap(tmp_path: Path) -> None:
    for pid, swapped in ((6, 0), (7, 204800)):
        write(tmp_path / f"proc/{pid}/status", f"State:\tS (sleeping)\nVmSwap:\t  {swapped} kB\n")

    text = only(machine.judge_swap({6: "http", 7: "m_0_0"}, tmp_path))

    assert "warning: 200.0 MiB of the server's memory are in swap, most of m_0_0" == text
    assert [] == texts(machine.judge_swap({6: "http"}, tmp_path))


# ------------------------------------------------------- memory and control groups


def write_memory(root: Path, *, available_kib: int = 8 << 20, overcommit: int = 0) -> None:
    write(root / "proc/meminfo", f"MemTotal: {16 << 20} kB\nMemAvailable: {available_kib} kB\n")
    write(root / "proc/sys/vm/overcommit_memory", f"{overcommit}\n")


def test_little_memory_and_no_overcommitment(tmp_path: Path) -> None:
    write_memory(tmp_path, available_kib=100 << 10, overcommit=2)

    judged = texts(machine.judge_memory(0, tmp_path))

    assert "warning: the machine has 100.0 MiB of 16.0 GiB of memory left" == judged[0]
    assert "note: the kernel promises no more memory than it has" in judged[1]


@pytest.mark.row("L13")
def test_a_container_that_is_nearly_full_and_had_processes_killed(tmp_path: Path) -> None:
    write_memory(tmp_path)
    write(tmp_path / "proc/self/cgroup", "0::/a/b\n")
    group = tmp_path / "sys/fs/cgroup/a"
    write(group / "memory.max", f"{1000 * MIB}\n")
    write(group / "memory.current", f"{1000 * MIB}\n")
    write(group / "memory.stat", f"anon 5\ninactive_file {50 * MIB}\n")
    write(group / "memory.events", "low 0\noom 4\noom_kill 3\n")
    write(group / "b" / "memory.max", "max\n")
    full = texts(machine.judge_memory(0, tmp_path))
    write(group / "memory.stat", f"anon 5\ninactive_file {500 * MIB}\n")
    write(group / "memory.events", "oom_kill 0\n")

    assert "warning: the control group uses 950.0 MiB of the 1000.0 MiB" in full[0]
    assert "has killed a process of this control group for want of memory, 3 times" in full[1]
    assert [] == texts(machine.judge_memory(0, tmp_path)), "files can be dropped"


def test_a_container_of_version_1(tmp_path: Path) -> None:
    write_memory(tmp_path)
    write(tmp_path / "proc/self/cgroup", "4:memory:/d/x\n3:cpu,cpuacct:/d/x\n")
    group = tmp_path / "sys/fs/cgroup/memory/d/x"
    write(group / "memory.limit_in_bytes", f"{1000 * MIB}\n")
    write(group / "memory.usage_in_bytes", f"{990 * MIB}\n")
    write(tmp_path / "sys/fs/cgroup/memory/d/memory.limit_in_bytes", f"{1 << 62}\n")
    cores = tmp_path / "sys/fs/cgroup/cpu,cpuacct/d/x"
    write(cores / "cpu.cfs_quota_us", "50000\n")
    write(cores / "cpu.cfs_period_us", "100000\n")

    full = only(machine.judge_memory(0, tmp_path))
    slow = only(machine.judge_cores(0, 1, tmp_path))

    assert "the control group uses 990.0 MiB of the 1000.0 MiB" in full
    assert "warning: the control group allows the time of 0.5 of" in slow


def test_fewer_cores_than_the_machine_has(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/\n")
    write(tmp_path / "sys/fs/cgroup/cpu.max", "50000 100000\n")
    few = list(machine.judge_cores(0, 1, tmp_path))
    write(tmp_path / "sys/fs/cgroup/cpu.max", "max 100000\n")

    assert "warning: the control group allows the time of 0.5 of" in only(few)
    (command,) = few[0].commands
    assert "OMP_NUM_THREADS=1 zmqtriton " in command
    assert "--model-env" not in command, "it would restrict models to it"
    assert [] == texts(machine.judge_cores(0, 1, tmp_path))


def test_many_instances(tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))

    text = only(machine.judge_cores(0, 4 * cores + 1, tmp_path))

    assert f"note: {4 * cores + 1} instances share {cores} cores" == text


def test_what_a_triton_has_left_in_shared_memory(tmp_path: Path) -> None:
    folder = tmp_path / "dev/shm"
    write(folder / "mine", "x" * 2 * MIB)
    nothing = texts(machine.judge_shared_memory({}, tmp_path))
    write(folder / "triton_python_backend_shm_region_1", "x" * 2 * MIB)

    text = only(machine.judge_shared_memory({}, tmp_path))

    assert [] == nothing
    assert "note: an NVIDIA Triton has left 2.0 MiB in /dev/shm (1 files)" == text


def test_full_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dev/shm").mkdir(parents=True)
    disk(monkeypatch, free=MIB)

    text = only(machine.judge_shared_memory({"allow-client-shm": True}, tmp_path))

    assert "warning: /dev/shm has 1.0 MiB of 64.0 MiB left, and clients may" in text
    assert [] == texts(machine.judge_shared_memory({}, tmp_path))


# ------------------------------------------------------------ GPUs and the kernel


def no_driver() -> list[object]:
    raise NvmlError("nvmlInit_v2 returned 18")


def install_cupy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = "Metadata-Version: 2.1\nName: cupy-cuda12x\nVersion: 13.9\n"
    write(folder / "cupy_cuda12x-13.9.dist-info" / "METADATA", metadata)
    monkeypatch.syspath_prepend(str(folder))


def test_cupy_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_cupy(tmp_path, monkeypatch)

    text = only(programs.judge_gpus(0, tmp_path, no_driver))

    assert "note: cupy 13.9 is installed, and no GPU can be seen" == text


def test_a_driver_that_does_not_answer_and_one_that_is_missing(tmp_path: Path) -> None:
    write(tmp_path / "dev/nvidia0", "")

    def no_library() -> list[object]:
        raise OSError

    odd = only(programs.judge_gpus(0, tmp_path, no_driver))
    missing = only(programs.judge_gpus(0, tmp_path, no_library))

    expected = "warning: there is an NVIDIA GPU, and its driver does not answer"
    assert f"{expected}: nvmlInit_v2 returned 18" == odd
    assert f"{expected}: its library libnvidia-ml.so.1 is missing" == missing


def test_a_gpu_that_is_not_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "dev/nvidia0", "")
    limits(tmp_path, locked_memory=64 << 10)
    monkeypatch.setattr(os, "access", lambda path, mode: False)

    forbidden, locked, no_cupy = texts(programs.judge_gpus(7, tmp_path, lambda: [1]))
    monkeypatch.undo()
    limits(tmp_path, locked_memory="unlimited")
    install_cupy(tmp_path, monkeypatch)

    assert f"warning: this user may not open {tmp_path}/dev/nvidia0" == forbidden
    assert "note: a process may lock 64 KiB of memory only" == locked
    assert "note: there is a GPU, and cupy is missing" == no_cupy
    assert [] == texts(programs.judge_gpus(7, tmp_path, lambda: [1]))


def test_an_old_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(pid: int) -> int:
        raise OSError(errno.ENOSYS, "not implemented")

    options = parse(["--model-repository=/srv"])
    well = texts(machine.judge_start(options))
    monkeypatch.setattr(os, "pidfd_open", fail)

    text = only(machine.judge_start(options))

    assert [] == well == texts(machine.judge_start(None))
    assert f"not implemented (kernel {os.uname().release}, glibc" in text
    assert text.startswith("error: pidfd_open() does not work here: ")


def test_a_clock_that_is_wrong() -> None:
    text = only(programs.judge_clock(1.0e9))

    assert "warning: the clock of this machine is wrong: it is before this program" in text
    assert [] == texts(programs.judge_clock(time.time()))
