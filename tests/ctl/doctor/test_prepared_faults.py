"""Faults that are really prepared: read from the system, then judged."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Authority
from tests.support.waiting import eventually
from zmqtriton.control_client.client import NoServerError, ServerSelector
from zmqtriton_addons.tools.doctor.facts import Facts, RunningServer
from zmqtriton_addons.tools.doctor.judging.all import judge
from zmqtriton_addons.tools.doctor.reading import (
    files,
    guarded,
    memory,
    processes,
    programs,
    services,
)
from zmqtriton_addons.tools.doctor.reading.collect import collect

NOBODY = 65534
MIB = 1 << 20


def texts(facts: Facts) -> list[str]:
    return [f"{finding.severity.value}: {finding.text}" for finding in judge(facts)]


def only(facts: Facts) -> str:
    (text,) = texts(facts)
    return text


@contextmanager
def child(command: Sequence[str] = ("sleep", "60"), **more: Any) -> Iterator[int]:
    with subprocess.Popen(command, **more) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@contextmanager
def as_user(number: int) -> Iterator[None]:
    os.seteuid(number)
    try:
        yield
    finally:
        os.seteuid(0)


def server(*uses: Any) -> RunningServer:
    return RunningServer("a", 1, "", (), uses)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


# --------------------------------------------------------------------- limits


@pytest.mark.row("L13")
def test_few_descriptors() -> None:
    with child() as pid:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (1024, 1024))
        few = processes.read_limits(pid)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (100, 100))
        hardly_any = processes.read_limits(pid)

    expected = "a process may have {} file descriptors, which is few"
    assert f"warning: {expected.format(1024)}" == only(Facts(limits=few))
    assert f"error: {expected.format(100)}" == only(Facts(limits=hardly_any))


def test_descriptors_that_are_nearly_used_up(tmp_path: Path) -> None:
    code = "import time, os; f=[os.dup(0) for _ in range(50)]; print(flush=True); time.sleep(60)"
    command = [sys.executable, "-S", "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        use = processes.read_use("http", holder.pid)
        holder.kill()
    limits = replace(Facts().limits, descriptors=5000)

    assert use.descriptors is not None
    assert use.descriptors >= 50
    full = replace(use, descriptors=4600)
    assert [] == texts(Facts(server=server(use), limits=limits))
    assert f"warning: http (pid {use.pid}) uses 4600 of 5000 file descriptors" == only(
        Facts(server=server(full), limits=limits)
    )


def _allow_few_processes() -> None:
    resource.setrlimit(resource.RLIMIT_NPROC, (50, 50))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_few_processes_for_a_user_who_is_not_root() -> None:
    with child(user=NOBODY, preexec_fn=_allow_few_processes) as pid:
        limits = processes.read_limits(pid)

    assert "warning: this user may have 50 processes and threads, which is few" == only(
        Facts(limits=limits)
    )


def test_a_process_that_is_stopped() -> None:
    with child() as pid:
        os.kill(pid, signal.SIGSTOP)
        use = eventually(
            lambda: found if (found := processes.read_use("broker", pid)).state == "T" else None,
            10,
            "it is stopped",
        )

    assert f"error: broker (pid {pid}) is stopped by a signal or a debugger" == only(
        Facts(server=server(use))
    )


def test_memory_in_swap(tmp_path: Path) -> None:
    write(tmp_path / "7" / "status", "Name:\tx\nState:\tS (sleeping)\nVmSwap:\t  204800 kB\n")

    found = only(Facts(server=server(processes.read_use("m_0_0", 7, tmp_path))))

    assert "warning: 200.0 MiB of the server's memory are in swap, most of m_0_0" == found


# ------------------------------------------------------- memory and control groups


def machine(root: Path, *, available_kib: int = 8 << 20, overcommit: int = 0) -> None:
    total = f"MemTotal: {16 << 20} kB\nMemAvailable: {available_kib} kB\n"
    write(root / "proc/meminfo", total)
    write(root / "proc/sys/vm/overcommit_memory", f"{overcommit}\n")


def test_little_memory_and_no_overcommitment(tmp_path: Path) -> None:
    machine(tmp_path, available_kib=100 << 10, overcommit=2)

    found = texts(Facts(memory=memory.read_memory(root=tmp_path)))

    assert "warning: the machine has 100.0 MiB of 16.0 GiB of memory left" == found[0]
    assert "note: the kernel promises no more memory than it has" in found[1]


@pytest.mark.row("L13")
def test_a_container_that_is_nearly_full_and_had_processes_killed(tmp_path: Path) -> None:
    machine(tmp_path)
    write(tmp_path / "proc/self/cgroup", "0::/a/b\n")
    group = tmp_path / "sys/fs/cgroup/a"
    write(group / "memory.max", f"{1000 * MIB}\n")
    write(group / "memory.current", f"{1000 * MIB}\n")
    write(group / "memory.stat", f"anon 5\ninactive_file {50 * MIB}\n")
    write(group / "memory.events", "low 0\noom 4\noom_kill 3\n")
    write(group / "b" / "memory.max", "max\n")
    full = texts(Facts(memory=memory.read_memory(root=tmp_path)))
    write(group / "memory.stat", f"anon 5\ninactive_file {500 * MIB}\n")
    write(group / "memory.events", "oom_kill 0\n")

    assert "warning: the control group uses 950.0 MiB of the 1000.0 MiB" in full[0]
    assert "has killed a process of this control group for want of memory, 3 times" in full[1]
    assert [] == texts(Facts(memory=memory.read_memory(root=tmp_path))), "files can be dropped"


def test_a_container_of_version_1(tmp_path: Path) -> None:
    machine(tmp_path)
    write(tmp_path / "proc/self/cgroup", "4:memory:/d/x\n3:cpu,cpuacct:/d/x\n")
    group = tmp_path / "sys/fs/cgroup/memory/d/x"
    write(group / "memory.limit_in_bytes", f"{1000 * MIB}\n")
    write(group / "memory.usage_in_bytes", f"{990 * MIB}\n")
    write(tmp_path / "sys/fs/cgroup/memory/d/memory.limit_in_bytes", f"{1 << 62}\n")
    cores = tmp_path / "sys/fs/cgroup/cpu,cpuacct/d/x"
    write(cores / "cpu.cfs_quota_us", "50000\n")
    write(cores / "cpu.cfs_period_us", "100000\n")

    facts = Facts(memory=memory.read_memory(root=tmp_path), cores=memory.read_cores(1, 0, tmp_path))

    full, slow = texts(facts)
    assert "the control group uses 990.0 MiB of the 1000.0 MiB" in full
    assert "warning: the control group allows the time of 0.5 of" in slow


def test_fewer_cores_than_the_machine_has(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/\n")
    write(tmp_path / "sys/fs/cgroup/cpu.max", "50000 100000\n")
    few = memory.read_cores(1, 0, tmp_path)
    write(tmp_path / "sys/fs/cgroup/cpu.max", "max 100000\n")

    assert "warning: the control group allows the time of 0.5 of" in only(Facts(cores=few))
    assert [] == texts(Facts(cores=memory.read_cores(1, 0, tmp_path)))


def test_what_a_triton_has_left_in_shared_memory(tmp_path: Path) -> None:
    folder = tmp_path / "dev/shm"
    write(folder / "mine", "x" * 2 * MIB)
    nothing = texts(Facts(shared_memory=memory.read_shared_memory(tmp_path)))
    write(folder / "triton_python_backend_shm_region_1", "x" * 2 * MIB)

    found = only(Facts(shared_memory=memory.read_shared_memory(tmp_path)))

    assert [] == nothing
    assert "note: an NVIDIA Triton has left 2.0 MiB in /dev/shm (1 files)" == found


# -------------------------------------------------------------- files and places


def test_a_port_in_use_is_told_with_its_holder() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        number = holder.getsockname()[1]
        port = services.read_port("http-port", "127.0.0.1", number)
    free = services.read_port("http-port", "127.0.0.1", number)

    assert f"error: port {number} is in use by process {os.getpid()} (" in only(Facts(ports=[port]))
    assert [] == texts(Facts(ports=[free]))


def test_a_runtime_directory_of_a_server_that_was_killed(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
        end.bind(str(tmp_path / "ctl"))
        end.listen()
        living = list(files.read_runtime_directories([tmp_path], ""))
    dead = list(files.read_runtime_directories([tmp_path, tmp_path / "other"], ""))

    assert [] == living
    assert f"note: a server that was killed has left {tmp_path}" == only(
        Facts(runtime_directories=dead)
    )


def test_a_runtime_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, problem in (
        (tmp_path / ("x" * 100), "its path is longer than"),
        (tmp_path / "file", "it is no directory"),
    ):
        found = list(files.read_runtime_directories([], str(path)))
        assert problem in only(Facts(runtime_directories=found))
    assert [] == list(files.read_runtime_directories([], str(tmp_path / "new")))


@pytest.mark.row("L13")
def test_certificates_that_expire_or_cannot_be_used(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, other = authority.issue("one"), authority.issue("other")
    one.key.chmod(0o600)
    good = files.read_certificate("--http-server-cert", str(one.cert), str(one.key))
    mixed = files.read_certificate("--http-server-cert", str(one.cert), str(other.key))
    missing = files.read_certificate("--http-server-cert", str(one.cert), "/nowhere")
    one.key.chmod(0o644)
    public = files.read_certificate("--http-server-cert", str(one.cert), str(one.key))

    def said(certificate: Any, days: float) -> list[str]:
        at_any_time = replace(certificate, begins_s=0.0)
        now_s = good.ends_s + days * 86400
        return texts(Facts(now_s=now_s, certificates=[at_any_time]))

    assert [] == said(good, -40)
    assert "warning: the certificate" in said(good, -1.5)[0]
    assert "expires in 1 day, " in said(good, -1.5)[0]
    assert "error: the certificate" in said(good, 1)[0]
    assert "has expired" in said(good, 1)[0]
    assert "cannot be used: KEY_VALUES_MISMATCH" in said(mixed, -40)[0]
    assert "cannot be used: No such file or directory" in said(missing, -40)[0]
    assert "every user of this machine can read the key" in said(public, -40)[0]


def test_a_file_of_tokens_that_all_can_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.touch(mode=0o644)
    options = {"tokens": str(path)}
    public = list(files.read_secret_files(options))
    path.chmod(0o600)
    private = list(files.read_secret_files(options))
    path.unlink()

    assert "warning: every user of this machine can read" in only(Facts(secret_files=public))
    assert [] == texts(Facts(secret_files=private))
    assert "error: --tokens:" in only(Facts(secret_files=list(files.read_secret_files(options))))


@pytest.mark.row("L13")
def test_settings_of_systemd(tmp_path: Path) -> None:
    folder = tmp_path / "etc/systemd/system"
    unit = "[Service]\nTimeoutStopSec=1min 5s\nLimitNOFILE=65536\nKillMode=mixed\n"
    write(folder / "zmqtriton.service", f"{unit}ExecStart=/opt/zmqtriton/bin/zmqtriton --x\n")
    write(tmp_path / "opt/zmqtriton/bin/zmqtriton", "")
    write(tmp_path / "etc/zmqtriton/environment", 'ZMQTRITON_OPTIONS="--exit-timeout-secs=90"\n')
    options = {"exit-timeout-secs": 60, "exit-drain-secs": 0}
    well = list(files.read_units(tmp_path))
    drop_in = folder / "zmqtriton.service.d/override.conf"
    write(drop_in, "[Service]\nTimeoutStopSec=20\nLimitNOFILE=512:1024\nKillMode=process\n")
    (tmp_path / "opt/zmqtriton/bin/zmqtriton").unlink()

    found = texts(Facts(units=list(files.read_units(tmp_path)), options=options))

    assert [] == texts(Facts(units=well, options=options))
    assert "--exit-timeout-secs=90" == files.read_unit_options(tmp_path)
    assert "starts /opt/zmqtriton/bin/zmqtriton, which does not exist" in found[0]
    assert "kills the server 20 s after a stop, and the server may take 60 s" in found[1]
    assert "allows 1024 file descriptors" in found[2]
    assert "has KillMode=process" in found[3]


def test_the_unit_as_it_is_delivered_is_well() -> None:
    unit = Path(__file__).parents[3] / "deploy" / "systemd" / "zmqtriton.service"
    settings = dict(files._assignments(unit))

    assert ("45", "65536", "mixed") == tuple(
        settings[name] for name in ("TimeoutStopSec", "LimitNOFILE", "KillMode")
    )


# ------------------------------------------------------------- Pythons and programs


def model(repository: Path, name: str, parameter: str = "", value: str = "") -> Path:
    config = f'name: "{name}"\nbackend: "python"\n'
    if parameter:
        value = f'{{ string_value: "{value}" }}'
        config += f'parameters {{ key: "{parameter}" value {value} }}\n'
    write(repository / name / "config.pbtxt", config)
    write(repository / name / "1" / "model.py", "")
    return repository / name


@pytest.mark.row("L13")
def test_pythons_that_models_lack(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    old = tmp_path / "old"
    for path in (old / "bin/activate", old / "bin/python", old / "lib/python3.7/site.py"):
        write(path, "")
    (old / "bin/python").chmod(0o755)
    model(repository, "fine")
    model(repository, "aged", "EXECUTION_ENV_PATH", str(old))
    model(repository, "gone", "EXECUTION_ENV_PATH", "/nowhere/env.tar.gz")
    model(repository, "missing", "PYTHON_EXECUTABLE", "python3.99")

    found = texts(
        Facts(model_pythons=list(programs.read_model_pythons([str(repository)], may_build=False)))
    )

    assert 3 == len(found)
    assert "error: model aged has no usable Python" in found[0]
    assert "is Python 3.7; models need 3.8 or newer" in found[0]
    assert "model gone has no usable Python: Failed to get the canonical path" in found[1]
    assert "PYTHON_EXECUTABLE 'python3.99': there is no such interpreter" in found[2]


def test_uv_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "models"
    write(model(repository, "built") / "requirements.txt", "numpy\n")
    asked = list(programs.read_model_pythons([str(repository)], may_build=True))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))

    facts = Facts(model_pythons=asked, has_uv=programs.has_uv())

    assert "error: uv is missing, which builds the environments of built" == only(facts)


def test_a_library_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    well = texts(Facts(packages=list(programs.read_packages())))
    metadata = "Metadata-Version: 2.1\nName: falcon\nVersion: 3.0\n"
    write(tmp_path / "falcon-3.0.dist-info" / "METADATA", metadata)
    monkeypatch.syspath_prepend(str(tmp_path))

    found = only(Facts(packages=list(programs.read_packages())))

    assert [] == well
    assert "error: the library falcon is 3.0; zmqtriton needs falcon" in found


@pytest.mark.parametrize(
    ("version", "conditions", "is_accepted"),
    [
        ("4.1.0", ">=4.1,<5", True),
        ("5.0", ">=4.1,<5", False),
        ("4.0.9", ">=4.1,<5", False),
        ("27.0.1rc1", ">=27,<28", True),
        ("1.0", "", True),
        ("", "", False),
    ],
)
def test_versions_are_compared_by_their_numbers(
    version: str, conditions: str, is_accepted: bool
) -> None:
    assert is_accepted == programs.is_accepted(version, conditions)


def test_another_installation_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = os.path.dirname(sys.executable)
    monkeypatch.setenv("PATH", beside)
    well = texts(Facts(installation=programs.read_installation()))
    other = tmp_path / "zmqtriton"
    write(other, "#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{beside}")

    found = only(Facts(installation=programs.read_installation()))

    assert [] == well
    assert f"note: PATH has another installation: {other}" == found


def test_cupy_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = "Metadata-Version: 2.1\nName: cupy-cuda12x\nVersion: 13.9\n"
    write(tmp_path / "cupy_cuda12x-13.9.dist-info" / "METADATA", metadata)
    monkeypatch.syspath_prepend(str(tmp_path))

    gpu = programs.read_gpu(root=tmp_path)

    found = texts(Facts(gpu=replace(gpu, count=0)))
    assert ["note: cupy 13.9 is installed, and no GPU can be seen"] == found


# ----------------------------------------------------------- users and environment


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try what another user may read")
def test_a_repository_that_the_models_user_cannot_read(tmp_path: Path) -> None:
    model(tmp_path / "models", "m")
    tmp_path.chmod(0o700)

    (user,) = services.read_stub_users(["nobody"], [str(tmp_path / "models")])

    assert "error: models cannot run as nobody: it cannot r" in only(Facts(stub_users=[user]))


def test_a_user_that_does_not_exist() -> None:
    found = list(services.read_stub_users(["no-such-user"], []))

    assert "there is no user 'no-such-user'" in only(Facts(stub_users=found))


def test_a_proxy_that_catches_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "example.org")
    caught = list(services.read_proxies())
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")

    assert "warning: http_proxy=http://proxy:3128 sends requests for localhost" in only(
        Facts(proxies=caught)
    )
    assert [] == list(services.read_proxies())


def test_a_home_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nowhere")

    found = only(Facts(home_problem=services.read_home_problem()))

    assert "note: the home directory cannot be used: there is no /nowhere" == found


# ------------------------------------------------------------------------ all of it


def test_a_server_that_would_not_start_is_judged_by_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    selector = ServerSelector(str(tmp_path / "run"))
    words = [
        *("--model-repository=/nowhere/models", f"--log-file={tmp_path}/logs/server.log"),
        *("--http-port=0", "--grpc-port=0", "--metrics-port=0"),
    ]

    found = texts(collect(selector, [], words))
    wrong = texts(collect(selector, [str(tmp_path)], ["--htpp-port=1"]))

    assert (
        "error: the model repository /nowhere/models cannot be used: No such file or directory"
        in found
    )
    assert any(text.startswith("error: the log cannot be written") for text in found)
    assert any("unrecognized option '--htpp-port'" in text for text in wrong)


def test_a_server_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(NoServerError):
        collect(ServerSelector(str(tmp_path), "someone"), [], [])


def test_options_of_the_unit_that_are_no_words_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZMQTRITON_OPTIONS", "--id='a")

    found = texts(collect(ServerSelector(str(tmp_path)), [], []))

    expected = "a server cannot start with these options: No closing quotation in --id='a"
    assert f"error: {expected}" in found


def test_what_cannot_be_read_is_told_and_the_rest_is_judged(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "of an odd kernel\n")
    write(tmp_path / "etc/systemd/system/zmqtriton.service", "[Service]\nLimitNOFILE=100\n")
    words = ["--model-repository=/nowhere/models", "--http-port=0", "--grpc-port=0"]

    facts = collect(ServerSelector(str(tmp_path / "run")), [], words, tmp_path)
    found = texts(facts)

    assert {"the memory of the machine", "the cores"} == set(facts.unread)
    reason = "ValueError: not enough values to unpack (expected 3, got 1)"
    assert f"note: could not be read: the cores: {reason}" in found
    assert any("the model repository /nowhere/models cannot be used" in text for text in found)
    assert any("allows 100 file descriptors" in text for text in found)


def test_a_file_that_may_not_be_read_is_told_by_name() -> None:
    facts = guarded.add(Facts(), limits=lambda: Path("/nowhere/limits").read_text())

    assert "note: could not be read: the limits: No such file or directory: /nowhere/limits" == (
        only(facts)
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_server_of_another_user_is_told(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
        end.bind(str(tmp_path / "ctl"))
        end.listen()
        with as_user(NOBODY):
            found = list(files.read_runtime_directories([tmp_path], ""))

    text = f"a server in {tmp_path} would be another user's, and this user may not ask it"
    assert f"note: {text}" == only(Facts(runtime_directories=found))
