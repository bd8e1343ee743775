"""`python3 tools/bare_roots.py [RELEASE[@user][:TARGET,…] …]`: the commands on bare machines.

For each release of Debian it makes a root with python3, venv, make and git, clones the last commit
into it, and there, in namespaces of its own, tries `make run` and runs targets of make. Such a root
has this machine's network, for the package index, and certificates, but none of its programs. Needs
root, Debian's apt and mmdebstrap; without them it says so and succeeds, unless ZT_CI is set. Runs
before anything is installed.

Commands run as root below a directory that is closed to other users, like root's home; after
`@user`, as another user in a home of its own.

With `--at-once` the targets of all roots run at the same time: what passes then does not depend on
the load of the machine. Their output is in build/roots/RELEASE.log. A target may have variables, as
in `'sid:test ARGS=--order-seed=7'`.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
#: Of the user that is not root.
_UID = 1000
#: Where the clone is, within the root.
_SOURCES = {"root": "root/src", "user": "home/user/src"}
RELEASES = {"bookworm": ["test"], "trixie": ["test"], "sid": ["test"]}
PACKAGES = ("python3", "python3-venv", "make", "git", "ca-certificates")
#: What the package index is reached by.
KEPT_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL", "UV_INDEX_URL")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
ADD_SUB = "http://127.0.0.1:8000/v2/models/add_sub/infer"
#: A server is ready a minute after `make run`, the downloads included.
READY_SECONDS = 60
#: Prints the mirror that apt has Debian from.
_MIRROR = ("apt-get", "indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(REPO_URI)")
#: Mounts what a container has below $root. What it may use of /dev is there, and shared memory that
#: is its own.
MOUNTS = """
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys" || mount --rbind -o ro /sys "$root/sys"
mount -t tmpfs -o mode=755 dev "$root/dev"
for node in null zero full random urandom tty; do
    : > "$root/dev/$node"; mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for stream in 0:stdin 1:stdout 2:stderr; do
    ln -s "/proc/self/fd/${stream%:*}" "$root/dev/${stream#*:}"
done
mkdir -p "$root/old"
cd "$root"
"""
#: Enters root $1 as a container does and runs the rest in $2. `pivot_root`, since in a chroot no
#: user namespace is made. The shell stays as the first process, which reaps what others leave.
_ENTER = f"""
root=$1 source=$2; shift 2
{MOUNTS}
pivot_root . old
cd "/$source"
python3 -c 'import ctypes; assert ctypes.CDLL(None).umount2(b"/old", 2) == 0'
status=0
"$@" || status=$?
exit $status
"""


def reason_against() -> str | None:
    """Return the reason why no root can be made here, or None."""
    if os.geteuid() != 0:
        return "only root can make them"
    for tool in ("apt-get", "mmdebstrap", "setpriv", "unshare", "pivot_root"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    return None if mirror() else "apt has no source of Debian's packages"


def mirror() -> str:
    lines = subprocess.run(_MIRROR, check=True, capture_output=True, text=True).stdout.split("\n")
    if named := os.environ.get("DEBIAN_MIRROR"):
        return named
    mirrors = [line.split(" ")[2] for line in lines if line.startswith("Debian main ")]
    return mirrors[0] if mirrors else ""


class Machine(NamedTuple):
    """A root file system, and the user who works in it."""

    root: Path
    user: str = "root"

    @classmethod
    def of(cls, word: str) -> Machine:
        release, _, user = word.partition("@")
        return cls(ROOT / "build" / "roots" / release, user or "root")

    def __str__(self) -> str:
        release = self.root.name
        return release if self.user == "root" else f"{release}@{self.user}"

    @property
    def source(self) -> Path:
        """The clone of the repository within the root."""
        return Path(_SOURCES[self.user])


def make_root(release: str, machine: Machine, packages: Sequence[str] = PACKAGES) -> None:
    """Make the root, or use the one of an earlier run, with a fresh clone of the last commit."""
    root = machine.root
    if not (root / "usr/bin/python3").exists():
        shutil.rmtree(root, ignore_errors=True)
        root.parent.mkdir(parents=True, exist_ok=True)
        options = ["--quiet", "--variant=apt", f"--include={','.join(packages)}"]
        # a mirror of an earlier day will do, too; the signatures are checked
        options.append('--aptopt=Acquire::Check-Valid-Until "false"')
        subprocess.run(["mmdebstrap", *options, release, str(root), mirror()], check=True)
    for name in (CERTIFICATES, "/etc/resolv.conf", "/etc/hosts"):
        shutil.copyfile(name, root / name[1:])
    source = root / machine.source
    shutil.rmtree(source, ignore_errors=True)
    source.parent.mkdir(parents=True, exist_ok=True)
    source.parent.chmod(0o700)
    subprocess.run(
        ["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(source)], check=True
    )
    if machine.user != "root":
        with (root / "etc/passwd").open("r+") as users:
            if f":{_UID}:" not in users.read():
                users.write(f"user:x:{_UID}:{_UID}::/home/user:/bin/sh\n")
        owner = f"{_UID}:{_UID}"
        subprocess.run(["chown", "--recursive", owner, str(source.parent)], check=True)


def start(machine: Machine, *command: str, log: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a command within the root; all its processes end with it, and with this program."""
    # it ends when this process is killed, and with it the first process there
    unshare = ["setpriv", "--pdeathsig=KILL", "unshare", "--fork", "--kill-child"]
    unshare += ["--mount", "--pid", "--ipc", "--uts"]
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": f"/{machine.source.parent}",
        "LANG": "C.UTF-8",
        "PIP_CERT": CERTIFICATES,
        "SSL_CERT_FILE": CERTIFICATES,
        **kept,
    }
    words = [*unshare, "sh", "-e", "-c", _ENTER, "sh", str(machine.root)]
    words.append(str(machine.source))
    if machine.user != "root":
        words += ["setpriv", f"--reuid={_UID}", f"--regid={_UID}", "--clear-groups"]
    words += command
    with log.open("ab") if log else nullcontext() as output:
        return subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )


def check_run(machine: Machine) -> bool:
    """Return whether `make run` answers a request in time."""
    began = time.monotonic()
    server = start(machine, "make", "run")
    try:
        while (waited := time.monotonic() - began) < READY_SECONDS and server.poll() is None:
            if has_answered():
                print(f"make run: answered after {waited:.0f} s", flush=True)
                return True
            time.sleep(0.2)
        print(f"make run: no answer in {waited:.0f} s", flush=True)
        return False
    finally:
        # it is the parent of the first process there, which the kernel ends with it
        server.send_signal(signal.SIGKILL)
        server.wait()


def has_answered() -> bool:
    tensor = {"shape": [1, 16], "datatype": "FP32", "data": [2] * 16}
    inputs = [{"name": name, **tensor} for name in ("INPUT0", "INPUT1")]
    request = urllib.request.Request(ADD_SUB, json.dumps({"inputs": inputs}).encode())
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            outputs = json.load(response)["outputs"]
    except OSError:
        return False
    data = {output["name"]: output["data"] for output in outputs}
    return data == {"OUTPUT0": [4] * 16, "OUTPUT1": [0] * 16}


def check_root(machine: Machine) -> list[str]:
    """Make the root of a release; return the failed steps."""
    make_root(machine.root.name, machine)
    return [] if check_run(machine) else [f"{machine}: make run"]


def check_targets(machine: Machine, targets: Sequence[str], log: Path | None = None) -> list[str]:
    """Run the targets of make; return the failed ones."""
    failed = []
    for target in targets:
        began = time.monotonic()
        status = start(machine, "make", *shlex.split(target), log=log).wait()
        print(f"{machine}: make {target}: {status}, {time.monotonic() - began:.0f} s", flush=True)
        failed += [f"{machine}: make {target}"] if status else []
    return failed


def check_at_once(plan: Mapping[Machine, Sequence[str]]) -> list[str]:
    """Run the targets of all roots at once; return the failed steps.

    `make run` comes before, one root after the other, because its servers share a port.
    """
    failed = [line for machine in plan for line in check_root(machine)]
    with ThreadPoolExecutor(len(plan)) as pool:
        running = []
        for machine, targets in plan.items():
            log = machine.root.with_name(f"{machine}.log")
            log.unlink(missing_ok=True)
            running.append(pool.submit(check_targets, machine, targets, log))
        return failed + [line for each in running for line in each.result()]


def main(words: list[str]) -> int:
    if reason := reason_against():
        print(f"no bare roots: {reason}")
        return 1 if os.environ.get("ZT_CI") else 0
    is_at_once, words = "--at-once" in words, [word for word in words if word != "--at-once"]
    plan: dict[Machine, list[str]] = {}
    for word in words or RELEASES:
        name, _, targets = word.partition(":")
        machine = Machine.of(name)
        plan[machine] = targets.split(",") if targets else RELEASES.get(machine.root.name, ["test"])
    if is_at_once:
        failed = check_at_once(plan)
    else:
        failed = [
            line
            for machine, targets in plan.items()
            for line in (*check_root(machine), *check_targets(machine, targets))
        ]
    print("\n".join(f"failed: {line}" for line in failed) or "all passed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
