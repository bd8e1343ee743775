"""The machines, in the order of the page."""

from __future__ import annotations

import sys

from tests.faults.machines.machine import Machine, as_user, needs, python_as
from tests.support.machines import forbidden_calls, only_ipv6
from tests.support.server import Server

#: A user that nothing else of this machine is.
_NAMELESS = 41_234


def _sh(script: str) -> tuple[str, ...]:
    """Return the beginning of a command line that runs a script before the program."""
    return ("sh", "-c", f'{script}exec "$@"', "sh")


def _without(error: str, *calls: str) -> tuple[str, ...]:
    return tuple(forbidden_calls.without(error, *calls))


def _cannot_forbid() -> str:
    return "" if forbidden_calls.can_forbid() else "no filter for this processor"


def _make_lost_and_found(server: Server) -> None:
    (server.repository / "lost+found").mkdir(mode=0o700)


ROWS = (
    Machine("plain", "Nothing is taken away"),
    Machine(
        "nameless",
        "A user without a name, a read-only root, no home",
        enter="mount -o remount,bind,ro /",
        wrapper=as_user(_NAMELESS),
        environment={"HOME": "/nonexistent"},
        missing=lambda: python_as(_NAMELESS),
    ),
    Machine(
        "no-capabilities",
        "Root without capabilities (`--cap-drop ALL`), `no-new-privileges`",
        wrapper=("setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"),
        missing=needs("setpriv"),
    ),
    Machine(
        "no-dev-shm",
        "No `/dev/shm`",
        enter="""
            mkdir "$PLACE/dev"
            for name in full null random urandom zero; do
                : > "$PLACE/dev/$name"
                mount --bind "/dev/$name" "$PLACE/dev/$name"
            done
            mount --rbind "$PLACE/dev" /dev
        """,
    ),
    Machine(
        "small-dev-shm",
        "`/dev/shm` of 1 MB",
        enter="mount -t tmpfs -o size=1m machine /dev/shm",
    ),
    Machine(
        "process-1",
        "The server is process 1",
        wrapper=("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"),
    ),
    Machine(
        "hidden-processes",
        "`/proc` hides the processes of others (`hidepid=2`)",
        enter="mount -t proc -o hidepid=2 proc /proc",
        wrapper=as_user(_NAMELESS),
        missing=lambda: python_as(_NAMELESS),
    ),
    Machine(
        "container-profile",
        "A container's seccomp profile",
        wrapper=(
            *_without("EPERM", "io_uring_setup", "perf_event_open", "ptrace", "setns", "unshare"),
            *_without("EPERM", "process_vm_readv", "process_vm_writev", "userfaultfd"),
            *_without("ENOSYS", "clone3"),
        ),
        missing=_cannot_forbid,
    ),
    *(
        Machine(
            f"no-{call.replace('_', '-')}",
            f"`{call}` is forbidden",
            sentence=rf"error: {call}\(\) does not work here: Function not implemented",
            shown=f"{call}() does not work here: Function not implemented …",
            wrapper=_without("ENOSYS", call),
            missing=_cannot_forbid,
        )
        for call in ("memfd_create", "pidfd_open", "prlimit64")
    ),
    Machine(
        "no-timerfd",
        "`timerfd_create` and `statx` are forbidden",
        wrapper=_without("ENOSYS", "timerfd_create", "statx"),
        missing=_cannot_forbid,
    ),
    Machine(
        "no-fallocate",
        "No `fallocate`",
        wrapper=_without("EOPNOTSUPP", "fallocate"),
        missing=_cannot_forbid,
    ),
    Machine(
        "no-core-files",
        "A hard limit of core files (`ulimit -c 0`) that root may not raise",
        wrapper=("setpriv", "--bounding-set=-sys_resource", *_sh("ulimit -c 0; ")),
        missing=needs("setpriv"),
    ),
    Machine(
        "few-processes",
        "7 processes and threads (`ulimit -u`)",
        sentence="error: ulimit -u of the user allows 7 processes and threads, and ",
        shown="ulimit -u of the user allows 7 processes and threads, and … are there; "
        "the server needs … more",
        wrapper=("prlimit", "--nproc=7:7", *as_user(_NAMELESS)),
        missing=lambda: python_as(_NAMELESS) or needs("prlimit")(),
    ),
    Machine(
        "small-files",
        "Files of 500 KB (`ulimit -f`)",
        sentence="error: ulimit -f allows files of 500000 bytes",
        shown="ulimit -f allows files of 500000 bytes, which counts for shared memory, too …",
        wrapper=("prlimit", "--fsize=500000:500000"),
        missing=needs("prlimit"),
    ),
    Machine(
        "closed-streams",
        "stdin, stdout and stderr are closed",
        wrapper=("sh", "-c", 'case "$*" in *ctl*) ;; *) exec <&- >&- 2>&-;; esac; exec "$@"', "sh"),
    ),
    Machine(
        "lost-and-found",
        "The repository is the root of a file system (`lost+found`)",
        prepare=_make_lost_and_found,
    ),
    Machine(
        "only-ipv6",
        "Addresses of IPv6 alone but for loopback, default options",
        namespaces=("--net",),
        enter=f'"{sys.executable}" "{only_ipv6.__file__}" --with-loopback true',
        options=("--http-address=0.0.0.0", "--grpc-address=0.0.0.0"),
        host=f"[{only_ipv6.ADDRESS}]",
    ),
    Machine(
        "two-runtime-directories",
        "`RUNTIME_DIRECTORY` with two paths",
        environment={"RUNTIME_DIRECTORY": "/run/first:/run/second"},
        # the lock stays in a directory of somebody else's
        enter="mkdir /run/first /run/second; : > /run/first/lock",
    ),
)
MACHINES = {machine.name: machine for machine in ROWS}
