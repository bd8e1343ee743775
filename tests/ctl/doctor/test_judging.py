"""Judgements over facts that no test can prepare everywhere, and a machine that is well."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from zmqtriton.findings import Severity
from zmqtriton_addons.tools.doctor.facts import (
    Certificate,
    Cores,
    Facts,
    Gpu,
    Installation,
    Interpreter,
    Kernel,
    Limits,
    Memory,
    ModelPython,
    Place,
    Port,
    ProcessUse,
    RunningServer,
    RuntimeDirectory,
    SecretFile,
    SharedMemory,
    StubUser,
    Unit,
)
from zmqtriton_addons.tools.doctor.judging.all import JUDGEMENTS, judge

DAY_S = 86400
WELL = Facts(
    installed_s=1.7e9,
    server=RunningServer("a", 7, "1.0", (), [ProcessUse("supervisor", 7, 40)]),
    options={"allow-client-shm": True, "exit-timeout-secs": 30, "exit-drain-secs": 5},
    memory=Memory(group_limit_bytes=4 << 30, group_used_bytes=3 << 30),
    cores=Cores(4, 4.0, 12),
    shared_memory=SharedMemory(),
    environment_cache=Place("/var/cache"),
    log_directory=Place("/var/log"),
    temporary=Place("/tmp"),
    ports=[Port("http-port", 8000)],
    model_pythons=[ModelPython("m", requirements="/m/requirements.txt")],
    certificates=[Certificate("--http-server-cert", "/c", "/k", ends_s=1.8e9 + 90 * DAY_S)],
    secret_files=[SecretFile("tokens", "/t")],
    runtime_directories=[RuntimeDirectory("/run/zmqtriton")],
    units=[Unit("/etc/u", 45, 65536, "mixed")],
    gpu=Gpu(has_devices=True, count=1, cupy="13.0"),
    installation=Installation("1.0", "1.0"),
    stub_users=[StubUser("models")],
)
SERVER = WELL.server
assert SERVER is not None
FAULTS: dict[str, tuple[Facts, str]] = {
    "a server that is stopped": (
        replace(WELL, server=replace(SERVER, processes=[ProcessUse("broker", 8, state="T")])),
        "error: broker (pid 8) is stopped by a signal",
    ),
    "a unit that does not stay up": (
        replace(WELL, server=None, units=[Unit("/etc/u", 45, 65536, "mixed", "exit-code")]),
        "error: /etc/u does not stay up: its last run ended with exit-code",
    ),
    "a server that waits for a disk": (
        replace(WELL, server=replace(SERVER, processes=[ProcessUse("broker", 8, state="D")])),
        "note: broker (pid 8) waits for a disk or a driver",
    ),
    "a server of another version": (
        replace(WELL, server=replace(SERVER, version="0.9")),
        "warning: the server is zmqtriton 0.9, and this program is 1.0",
    ),
    "models that are not ready": (
        replace(WELL, server=replace(SERVER, troubled=("m", "n"))),
        "warning: m, n are not ready",
    ),
    "a server that says nothing": (
        replace(WELL, runtime_directories=[RuntimeDirectory("/run/x", is_silent=True)]),
        "error: the server in /run/x is alive and does not answer",
    ),
    "a noexec cache": (
        replace(WELL, environment_cache=Place("/cache", can_execute=False)),
        "error: environments of models cannot run from /cache: it is mounted noexec",
    ),
    "a cache without room": (
        replace(WELL, environment_cache=Place("/cache", free_bytes=5 << 20)),
        "warning: the disk of /cache has 5 MiB left",
    ),
    "a log without room": (
        replace(WELL, log_directory=Place("/var/log", free_bytes=5 << 20)),
        "warning: the disk of /var/log, for the log, has 5 MiB left",
    ),
    "a full /tmp": (
        replace(WELL, temporary=Place("/tmp", free_bytes=0)),
        "warning: the disk of /tmp, for runtime directories, has 0 MiB left",
    ),
    "a /tmp that is not ours": (
        replace(WELL, temporary=Place("/tmp", is_writable=False)),
        "error: no runtime directory can be made",
    ),
    "a full /dev/shm": (
        replace(WELL, shared_memory=SharedMemory(64 << 20, 1 << 20)),
        "warning: /dev/shm has 1.0 MiB of 64.0 MiB left",
    ),
    "an old kernel": (
        replace(WELL, kernel=Kernel("4.18", "glibc 2.28", {"pidfd_open": "not implemented"})),
        "error: pidfd_open() does not work here: not implemented (kernel 4.18, glibc 2.28)",
    ),
    "a clock that is wrong": (
        replace(WELL, now_s=1.6e9, certificates=[]),
        "warning: the clock of this machine is wrong",
    ),
    "a certificate of tomorrow": (
        replace(WELL, certificates=[Certificate("--c", "/c", begins_s=1.8e9 + DAY_S)]),
        "error: the certificate /c is valid only from",
    ),
    "a debug build": (
        replace(WELL, interpreter=Interpreter(is_debug_build=True)),
        "warning: /usr/bin/python3 is a debug build",
    ),
    "a Python without PGO": (
        replace(WELL, interpreter=Interpreter(is_optimized=False)),
        "note: /usr/bin/python3 was built without --enable-optimizations",
    ),
    "another encoding": (
        replace(WELL, interpreter=Interpreter(encoding="ascii")),
        "warning: texts are encoded as ascii here, not as UTF-8",
    ),
    "files of two versions": (
        replace(WELL, installation=Installation("1.0", "0.9")),
        "warning: the code is zmqtriton 1.0, and its package says 0.9",
    ),
    "a driver that does not answer": (
        replace(WELL, gpu=Gpu(has_devices=True, nvml_problem="nvmlInit_v2 returned 18")),
        "warning: there is an NVIDIA GPU, and its driver does not answer",
    ),
    "devices of somebody else": (
        replace(WELL, gpu=replace(WELL.gpu, forbidden_devices=("/dev/nvidia0",))),
        "warning: this user may not open /dev/nvidia0",
    ),
    "a GPU without cupy": (
        replace(WELL, gpu=Gpu(has_devices=True, count=1)),
        "note: there is a GPU, and cupy is missing",
    ),
    "little locked memory beside a GPU": (
        replace(WELL, limits=Limits(locked_bytes=64 << 10)),
        "note: a process may lock 64 KiB of memory only",
    ),
    "few processes": (
        replace(WELL, limits=Limits(processes=100)),
        "warning: this user may have 100 processes and threads",
    ),
    "a port below 1024": (
        replace(WELL, ports=[Port("http-port", 80, is_forbidden=True)]),
        "error: --http-port=80: only root may open ports below 1024",
    ),
    "many instances": (
        replace(WELL, cores=Cores(2, None, 40)),
        "note: 40 instances share 2 cores",
    ),
    "options that are wrong": (
        replace(WELL, options_problem="unrecognized option '--x'"),
        "error: a server cannot start with these options: unrecognized option '--x'",
    ),
}


@pytest.mark.row("L13")
def test_nothing_is_said_of_a_machine_that_is_well() -> None:
    assert [] == judge(WELL)
    assert [] == judge(Facts())


@pytest.mark.row("L13")
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named_with_what_helps(fault: str) -> None:
    facts, expected = FAULTS[fault]

    (found,) = judge(facts)

    assert f"{found.severity.value}: {found.text}".startswith(expected)
    assert found.advice.endswith((".", ":", "?"))
    assert found.commands
    assert "\n" not in found.text


def test_unlimited_limits_are_well_and_root_has_as_many_processes_as_it_likes() -> None:
    assert [] == judge(replace(WELL, limits=Limits(math.inf, math.inf, math.inf)))
    assert [] == judge(replace(WELL, limits=Limits(processes=10, is_root=True)))


def test_errors_come_first() -> None:
    facts = replace(
        WELL,
        interpreter=Interpreter(is_optimized=False),
        limits=Limits(descriptors=1024),
        options_problem="x",
    )

    assert list(Severity) == [finding.severity for finding in judge(facts)]


def test_there_are_many_judgements() -> None:
    assert len(JUDGEMENTS) == len(set(JUDGEMENTS)) > 25


def test_what_could_not_be_read_may_be_for_root_alone() -> None:
    unread = {"the limits": "Permission denied: /proc/1/limits", "the cores": "ValueError: x"}

    forbidden, odd = judge(replace(WELL, unread=unread))

    assert ("sudo zmqtriton-ctl doctor",) == forbidden.commands
    assert () == odd.commands
