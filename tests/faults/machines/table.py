"""The machines, in the order of the page, and the page: docs/reliability.md has the table."""

from __future__ import annotations

import ctypes.util
import re
import subprocess
import sys
from typing import Any

from tests.faults.machines import preparations
from tests.faults.machines.machine import Machine, as_user, needs, needs_root, python_as
from tests.support.machines import forbidden_calls, only_ipv6
from tests.support.needs import ROOT

#: The models that are asked.
_BOTH = ("--load-model=identity_fp32", "--load-model=counting")
#: A group of the machine's own, called like its place.
_GROUP = "zmqtriton-${PLACE##*/}"
#: The file of each controller's limit, in both versions.
_GROUP_FILES = {"memory": "memory.limit_in_bytes memory.max", "pids": "pids.max"}
#: A user that nothing else of this machine is.
_NAMELESS = 41_234


def _sh(script: str) -> tuple[str, ...]:
    """Return the beginning of a command line that runs a script before the program."""
    return ("sh", "-c", f'{script}exec "$@"', "sh")


def _without(error: str, *calls: str) -> tuple[str, ...]:
    return tuple(forbidden_calls.without(error, *calls))


def _cannot_forbid() -> str:
    return "" if forbidden_calls.can_forbid() else "no filter for this processor"


def _grouped(**limits: int) -> dict[str, Any]:
    """Return how a machine is made whose server is in a control group with these limits."""
    commands = [
        f"""
        top=/sys/fs/cgroup
        if [ -d $top/{controller} ]; then top=$top/{controller}
        else echo +{controller} > $top/cgroup.subtree_control
        fi
        mkdir -p $top/{_GROUP}
        for file in {_GROUP_FILES[controller]}; do
            [ ! -e $top/{_GROUP}/$file ] || echo {limit} > $top/{_GROUP}/$file
        done
        """
        for controller, limit in limits.items()
    ]
    join = f"""
        PLACE=$PLACE
        for list in /sys/fs/cgroup/{_GROUP}/cgroup.procs /sys/fs/cgroup/*/{_GROUP}/cgroup.procs; do
            [ ! -e $list ] || echo $$ > $list
        done
    """
    return {
        "enter": "".join(commands),
        "wrapper": _sh(join),
        "leave": f"rmdir /sys/fs/cgroup/{_GROUP} /sys/fs/cgroup/*/{_GROUP} 2> /dev/null || true",
        "missing": needs_root,
    }


def _localized(name: str, source: str, charmap: str) -> dict[str, Any]:
    """Return how a machine is made that has this locale, which is made for it."""
    return {
        "enter": f"""
            mkdir "$PLACE/locales"
            localedef -c -i {source} -f {charmap} "$PLACE/locales/{name}" 2> /dev/null || true
            [ -e "$PLACE/locales/{name}/LC_CTYPE" ]
        """,
        "environment": {"LOCPATH": "$PLACE/locales", "LC_ALL": name, "PYTHONUTF8": "0"},
        "missing": needs("localedef"),
    }


def _no_jemalloc() -> str:
    return "" if ctypes.util.find_library("jemalloc") else "libjemalloc is missing"


def _cannot_block() -> str:
    words = ["env", "--block-signal=TERM", "true"]
    tried = subprocess.run(words, stderr=subprocess.DEVNULL, check=False)
    return "this env(1) blocks no signals" if tried.returncode else ""


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
        prepare=preparations.make_lost_and_found,
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
        "no-users-and-hosts",
        "No `/etc/passwd`, `/etc/group`, `/etc/hosts`, `/etc/resolv.conf`",
        enter="""
            for name in passwd group hosts resolv.conf; do mount --bind /dev/null /etc/$name; done
        """,
    ),
    Machine(
        "no-sys",
        "No `/sys`",
        enter="mount -t tmpfs -o ro machine /sys",
    ),
    Machine(
        "cgroup-v2",
        "Control groups of the second version",
        enter="mount -t cgroup2 machine /sys/fs/cgroup",
        namespaces=("--cgroup",),
        missing=needs_root,
    ),
    Machine(
        "noexec",
        "Nothing that is written may be executed (`noexec`)",
        enter='for place in "$PLACE" /run /dev/shm; do mount -o remount,noexec $place; done',
    ),
    Machine(
        "years-of-uptime",
        "The machine has been up for ten years",
        namespaces=("--time", "--monotonic=315360000", "--boottime=315360000"),
    ),
    Machine(
        "few-descriptors",
        "64 descriptors (`ulimit -n`)",
        sentence=r"the limit of open files allows 0 instances; .* \(see ulimit -n, LimitNOFILE\)",
        shown="the limit of open files allows 0 instances; … (see ulimit -n, LimitNOFILE)",
        wrapper=("prlimit", "--nofile=64:64"),
        missing=needs("prlimit"),
    ),
    Machine(
        "little-address-space",
        "4 GB of addresses (`ulimit -v`)",
        wrapper=("prlimit", "--as=4000000000:4000000000"),
        missing=needs("prlimit"),
    ),
    Machine(
        "small-stack",
        "Stacks of 256 KB (`ulimit -s`)",
        wrapper=("prlimit", "--stack=262144:262144"),
        missing=needs("prlimit"),
    ),
    Machine(
        "odd-signals",
        "Its parent ignores SIGCHLD, SIGPIPE and SIGHUP, and blocks SIGTERM and SIGINT",
        wrapper=("env", "--ignore-signal=CHLD,PIPE,HUP", "--block-signal=TERM,INT"),
        missing=_cannot_block,
    ),
    Machine(
        "empty-environment",
        "No environment",
        wrapper=("env", "-i"),
    ),
    Machine(
        "proxies",
        "`http_proxy`, `https_proxy` and `all_proxy` name one that is not there",
        environment=dict.fromkeys(
            ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"),
            "http://127.0.0.1:9",
        ),
    ),
    Machine(
        "hostile-python",
        "Variables of Python: a debug allocator, development mode, ASCII, warnings are errors",
        environment={
            "PYTHONASYNCIODEBUG": "1",
            "PYTHONDEVMODE": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONINSPECT": "1",
            "PYTHONINTMAXSTRDIGITS": "640",
            "PYTHONIOENCODING": "ascii",
            "PYTHONMALLOC": "debug",
            "PYTHONNOUSERSITE": "1",
            "PYTHONPYCACHEPREFIX": "/nonexistent",
            "PYTHONSAFEPATH": "1",
            "PYTHONSTARTUP": "/nonexistent",
            "PYTHONUTF8": "0",
            "PYTHONWARNINGS": "error",
        },
    ),
    Machine(
        "optimized",
        "Python without assertions and docstrings (`-OO`)",
        environment={"PYTHONOPTIMIZE": "2"},
    ),
    Machine("umask-077", "`umask 077`", wrapper=_sh("umask 077; ")),
    Machine("umask-000", "`umask 000`", wrapper=_sh("umask 000; ")),
    Machine(
        "odd-paths",
        "Paths with blanks, quotes, `%`, braces, other scripts and a line feed",
        directory='un répertoire d\'essai/100 % {"日本"}\nx',
    ),
    Machine(
        "long-paths",
        "A directory for temporary files whose path no socket can have",
        sentence="error: the path of runtime directory '.*' is too long for sockets: .*",
        shown="the path of runtime directory … is too long for sockets",
        environment={"TMPDIR": "$PLACE/" + "a" * 120},
        enter='mkdir "$PLACE/' + "a" * 120 + '"',
    ),
    Machine(
        "odd-model",
        "A model called `modèle 1.5 %d`",
        model="modèle 1.5 %d",
    ),
    Machine(
        "root-squash",
        "A repository that root may not read (`root_squash`)",
        sentence="failed to open directory .*/models: Permission denied",
        shown="failed to open directory …: Permission denied",
        prepare=preparations.give_away(_NAMELESS),
        wrapper=("setpriv", "--bounding-set=-dac_override,-dac_read_search"),
        missing=lambda: needs_root() or needs("setpriv")(),
    ),
    Machine(
        "few-megabytes",
        "A container of 512 MB with 64 processes",
        **_grouped(memory=512 << 20, pids=64),
    ),
    Machine(
        "few-tasks",
        "A control group with 8 processes and threads (`pids.max`)",
        sentence="error: pids.max of the control group allows 8 processes and threads, and ",
        shown="pids.max of the control group allows 8 processes and threads, and … are there; "
        "the server needs … more",
        **_grouped(pids=8),
    ),
    Machine(
        "many-cores",
        "64 processors",
        environment={"LD_PRELOAD": "$PLACE/cores.so"},
        options=("--http-workers=0", "--grpc-processes=0"),
        prepare=preparations.build_cores,
        missing=needs("gcc"),
    ),
    Machine(
        "jemalloc",
        "jemalloc in place of the allocator",
        environment={"LD_PRELOAD": ctypes.util.find_library("jemalloc") or ""},
        missing=_no_jemalloc,
    ),
    Machine("turkish", "A Turkish locale", **_localized("tr_TR.UTF-8", "tr_TR", "UTF-8")),
    Machine(
        "euc-jp", "A Japanese locale of EUC-JP", **_localized("ja_JP.EUC-JP", "ja_JP", "EUC-JP")
    ),
    Machine(
        "no-locale",
        "A locale that the machine has not",
        environment={"LC_ALL": "xx_XX.UTF-8", "LANG": "xx_XX.UTF-8"},
    ),
    Machine(
        "config-map",
        "A model in a ConfigMap of Kubernetes, changed by the rename of a link",
        prepare=preparations.make_config_map,
        change=preparations.flip_config_map,
    ),
    Machine(
        "load-with-the-gil",
        "SIGTERM while a load holds the GIL",
        options=("--model-control-mode=explicit", *_BOTH, "--exit-timeout-secs=2"),
        prepare=preparations.add_holder,
        before_end=preparations.load_holder,
    ),
    Machine(
        "short-grace",
        "SIGKILL 5 s after SIGTERM, amid a request (`terminationGracePeriodSeconds`)",
        prepare=preparations.add_sleeper,
        before_end=preparations.ask_sleeper,
        grace_s=5,
    ),
    Machine(
        "oldest-packages",
        "The oldest packages with wheels that the server may be installed with",
        python=preparations.lowest,
        missing=preparations.why_no_uv,
    ),
    Machine(
        "uv-tool",
        "Installed by `uv tool install`",
        python=preparations.uv_tool,
        missing=preparations.why_no_uv,
    ),
    Machine(
        "pipx",
        "Installed by `pipx install`",
        python=preparations.pipx,
        missing=preparations.why_no_uv,
    ),
    Machine(
        "user-packages",
        "Installed by `pip install --user`",
        python=lambda: preparations.BASE_PYTHON,
        prepare=preparations.install_for_user,
    ),
    Machine(
        "model-without-numpy",
        "A model whose environment has no package",
        prepare=preparations.use_environment(preparations.bare_environment),
        missing=preparations.why_no_uv,
    ),
    Machine(
        "model-with-old-numpy",
        "A model on Python 3.8 with numpy 1.17",
        prepare=preparations.use_environment(preparations.old_environment),
        missing=preparations.why_no_old_python,
    ),
    Machine(
        "rootless",
        "Root of a user namespace (a rootless container)",
        namespaces=("--user", "--map-root-user"),
        missing=needs_root,
    ),
    Machine(
        "no-proc",
        "No `/proc`",
        sentence="error: /proc is not mounted",
        shown="/proc is not mounted",
        wrapper=("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc; exec "$@"', "sh"),
    ),
    Machine(
        "full-disk",
        "stdout and stderr on a disk that is full",
        wrapper=_sh('case "$*" in *ctl*) ;; *) exec > /dev/full 2>&1;; esac; '),
    ),
    Machine(
        "unread-output",
        "The reader of stdout and stderr has ended",
        wrapper=_sh('case "$*" in *ctl*) ;; *) exec > "$PLACE/pipe" 2>&1;; esac; '),
        enter='mkfifo "$PLACE/pipe"; head -c 1 "$PLACE/pipe" > /dev/null &',
    ),
    Machine(
        "variables-of-systemd",
        "Variables of a systemd that has not started it",
        environment={
            "CACHE_DIRECTORY": "$PLACE/a:$PLACE/b",
            "CREDENTIALS_DIRECTORY": "/nonexistent",
            "JOURNAL_STREAM": "8:12345",
            "LISTEN_FDS": "3",
            "LISTEN_FDNAMES": "http:grpc:metrics",
            "LISTEN_PID": "1",
            "LOGS_DIRECTORY": "/nonexistent",
            "MAINPID": "1",
            "NOTIFY_SOCKET": "/nonexistent",
            "STATE_DIRECTORY": "/nonexistent",
            "WATCHDOG_PID": "1",
            "WATCHDOG_USEC": "1000",
        },
    ),
    Machine(
        "variables-of-others",
        "Variables of Kubernetes, gunicorn, gRPC, OpenMP and the C library",
        environment={
            "CUDA_VISIBLE_DEVICES": "none",
            "FORWARDED_ALLOW_IPS": "*",
            "GRPC_ENABLE_FORK_SUPPORT": "1",
            "GUNICORN_CMD_ARGS": "--workers=9 --bind=127.0.0.1:1 --preload --daemon",
            "MALLOC_ARENA_MAX": "1",
            "MALLOC_PERTURB_": "165",
            "OMP_NUM_THREADS": "many",
            "OPENBLAS_NUM_THREADS": "many",
            "PORT": "1",
            "SSL_CERT_FILE": "/nonexistent",
            "TZ": ":/nonexistent",
            "WEB_CONCURRENCY": "9",
            "ZMQTRITON_HTTP_PORT": "tcp://10.0.0.1:8000",
            "ZMQTRITON_PORT": "tcp://10.0.0.1:8000",
            "ZMQTRITON_SERVICE_HOST": "10.0.0.1",
        },
    ),
    Machine(
        "old-engine",
        "An old engine of containers, which forbids all newer calls",
        wrapper=_without("EPERM", "close_range", "pidfd_getfd", "statx", "io_uring_setup"),
        missing=_cannot_forbid,
    ),
    Machine(
        "odd-limits",
        "No locked memory, pending signals, file locks, message queues, priorities",
        wrapper=("prlimit", "--memlock=0:0", "--sigpending=0:0", "--locks=0:0", "--msgqueue=0:0"),
        missing=needs("prlimit"),
    ),
    Machine(
        "one-core",
        "One core of several (`taskset`)",
        wrapper=("taskset", "--cpu-list", "0"),
        missing=needs("taskset"),
    ),
    Machine(
        "no-place",
        "No directory for temporary files",
        environment={"TMPDIR": "/nonexistent"},
        enter="""
            mount --bind "$PLACE" /mnt
            for place in /tmp /var/tmp /run /dev/shm; do mount -t tmpfs machine $place; done
            mkdir -p "$PLACE"
            mount --move /mnt "$PLACE"
            for place in /tmp /var/tmp /run /dev/shm; do mount -o remount,ro $place; done
        """,
    ),
    Machine(
        "no-ipv6",
        "No IPv6",
        namespaces=("--net",),
        enter=f"""
            echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
            "{sys.executable}" "{only_ipv6.__file__}" --with-loopback true || ip link set lo up
        """,
    ),
    Machine(
        "umask-777",
        "`umask 777`, and a user without a name",
        wrapper=(*as_user(_NAMELESS), *_sh("umask 777; ")),
        missing=lambda: python_as(_NAMELESS),
    ),
    Machine(
        "no-random-addresses",
        "No random addresses (`setarch -R`)",
        wrapper=("setarch", "-R"),
        missing=needs("setarch"),
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


# --------------------------------------------------------------------------- the page

PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- generated: make faults OF=machines -->\n", "<!-- end -->\n"


def page_text() -> str:
    """Return the page with the table as it is to be."""
    rows = "".join(map(_row, MACHINES.values()))
    table = f"\n| Machine | The server |\n|---|---|\n{rows}\n"
    written = PAGE.read_text("utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda match: f"{BEGIN}{table}{END}", written)


def write_page() -> None:
    PAGE.write_text(page_text(), "utf-8")


def _row(machine: Machine) -> str:
    return f"| {machine.text} | {f'says `{machine.shown}`' if machine.sentence else 'works'} |\n"
