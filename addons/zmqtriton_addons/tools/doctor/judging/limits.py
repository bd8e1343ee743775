"""Limits of processes, and what the kernel and the C library can do."""

from __future__ import annotations

from collections.abc import Iterator

from zmqtriton.findings import Finding, error, note, warning
from zmqtriton_addons.tools.doctor.facts import Facts

#: An instance of a model needs five of the supervisor's; see "descriptors" in the supervisor.
_FEW_DESCRIPTORS = 4096
_TOO_FEW_DESCRIPTORS = 256
_NEARLY_ALL = 0.8
_FEW_PROCESSES = 1024
_PINNED_BYTES = 64 << 20
_RAISE = "Raise LimitNOFILE= in the unit (systemctl edit zmqtriton), or `ulimit -n` of the shell."


def judge_descriptor_limit(facts: Facts) -> Iterator[Finding]:
    limit = facts.limits.descriptors
    if limit >= _FEW_DESCRIPTORS:
        return
    text = f"a process may have {limit:g} file descriptors, which is few"
    about = "Each connection, instance and region of shared memory needs some. " + _RAISE
    judge = error if limit < _TOO_FEW_DESCRIPTORS else warning
    yield judge(text, about, "ulimit -n 65536")


def judge_descriptors_in_use(facts: Facts) -> Iterator[Finding]:
    limit = facts.limits.descriptors
    for process in facts.server.processes if facts.server else ():
        used = process.descriptors
        if used is not None and used > _NEARLY_ALL * limit:
            text = f"{process.name} (pid {process.pid}) uses {used} of {limit:g} file descriptors"
            yield warning(
                text,
                "Beyond the limit it refuses connections and loads. " + _RAISE,
                f"ls -l /proc/{process.pid}/fd",
            )


def judge_process_limit(facts: Facts) -> Iterator[Finding]:
    limits = facts.limits
    if limits.processes < _FEW_PROCESSES and not limits.is_root:
        yield warning(
            f"this user may have {limits.processes:g} processes and threads, which is few",
            "Each instance is a process, and numeric libraries have a thread for each core. "
            "Raise LimitNPROC= and TasksMax= in the unit, or `ulimit -u` of the shell.",
            "ulimit -u 16384",
        )


def judge_locked_memory(facts: Facts) -> Iterator[Finding]:
    if facts.gpu.count and facts.limits.locked_bytes < _PINNED_BYTES:
        yield note(
            f"a process may lock {facts.limits.locked_bytes / 1024:g} KiB of memory only",
            "CUDA may need more for copies to the GPU. Set LimitMEMLOCK=infinity in the unit, or "
            "`ulimit -l` of the shell.",
            "ulimit -l unlimited",
        )


def judge_kernel(facts: Facts) -> Iterator[Finding]:
    kernel = facts.kernel
    for call, reason in kernel.failing_calls.items():
        yield error(
            f"{call}() does not work here: {reason} (kernel {kernel.release}, {kernel.libc})",
            "The server needs Linux 5.3 and glibc 2.28 or newer. In a container, the seccomp "
            "profile of an old engine may forbid the call.",
            "uname -r",
        )


def judge_clock(facts: Facts) -> Iterator[Finding]:
    if facts.now_s < facts.installed_s - 86400:
        yield warning(
            "the clock of this machine is wrong: it is before this program was installed",
            "Certificates and tokens are judged by it, and log lines have its times.",
            "timedatectl",
        )
