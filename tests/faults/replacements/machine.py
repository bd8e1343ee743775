"""A machine whose first process is systemd, with the service as deploy/systemd/README.md has it.

It is a root of Debian with the last commit installed, in namespaces that share the network with
this machine, so its ports are found at 127.0.0.1. Needs what `make test-bare` needs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import psutil

from tests.faults.replacements.clients import MODELS, SharedMemoryClient
from tests.faults.replacements.ways import WITHIN_S, Way, be_patient
from tests.support.server import MODELS_DIRECTORY, ROOT, free_ports, status_of
from tests.support.waiting import eventually
from tools import bare_roots

#: That the kernel lets this process make control groups.
_TRY_GROUP = 'mount -t cgroup2 none /mnt; mkdir "/mnt/$1"; rmdir "/mnt/$1"'
_ROOT = ROOT / "build" / "roots" / "systemd"
_SOURCE = _ROOT / "root/src/deploy/systemd"
_RELEASE = "bookworm"
_PACKAGES = (*bare_roots.PACKAGES, "systemd", "dbus")
#: Makes a control group of its own, in which systemd has the root.
_ENTER_GROUP = """
mount -t cgroup2 none /mnt
mkdir /mnt/$1; echo $$ > /mnt/$1/cgroup.procs
exec unshare --mount --pid --ipc --uts --cgroup --fork --kill-child sh -ec "$2" sh "$3"
"""
_REMOVE_GROUP = """
mount -t cgroup2 none /mnt
find /mnt/$1 -depth -type d -exec rmdir {} +
"""
_BOOT = f"""
root=$1
{bare_roots.MOUNTS}
mount -t cgroup2 none "$root/sys/fs/cgroup"
mount -o bind,ro "$root/proc/sys" "$root/proc/sys"  # most of it is the machine's around it
for place in run tmp; do mount -t tmpfs -o mode=1777 $place "$root/$place"; done
pivot_root . old
umount -l /old
exec env -i container=other /lib/systemd/systemd --log-target=journal --show-status=0
"""
#: Of another file of options, which stands after that of the unit.
_DROP_IN = "[Service]\nEnvironmentFile=/etc/zmqtriton/others\n"
_SOCKETS = "[Socket]\nListenStream=\nListenStream=127.0.0.1:{}\nListenStream=127.0.0.1:{}\n"


def reason_against() -> str | None:
    """Return why no such machine can be had here."""
    if reason := bare_roots.reason_against():
        return reason
    words = ["unshare", "--mount", "sh", "-ec", _TRY_GROUP, "sh", f"zmqtriton-{os.getpid()}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    why = done.stderr.strip()
    return f"no control group can be made: {why}" if done.returncode else None


class OnMachine(Way):
    """The service of systemd, with a command that replaces its server."""

    #: Regions of root's, which the service's user may not open.
    leaves_out = (SharedMemoryClient,)
    command: tuple[str, ...]
    _UNITS: tuple[str, ...] = ("zmqtriton.service",)

    def __init__(self, directory: Path) -> None:
        self.http_port, self.grpc_port, metrics_port = free_ports(3)
        self._options = (
            f"--model-repository=/srv/models --http-port={self.http_port} "
            f"--grpc-port={self.grpc_port} --metrics-port={metrics_port} "
            "--http-workers=2 --grpc-processes=2"
        )
        self._group = f"zmqtriton-{os.getpid()}-{self.http_port}"
        self._outside: subprocess.Popen[bytes]
        self._first: psutil.Process

    def start(self) -> None:
        self._install()
        words = ["setpriv", "--pdeathsig=KILL"]  # it ends when this process is killed
        words += ["unshare", "--mount", "sh", "-ec", _ENTER_GROUP, "sh"]
        words += [self._group, _BOOT, str(_ROOT)]
        self._outside = subprocess.Popen(words, stdin=subprocess.DEVNULL)
        outside = psutil.Process(self._outside.pid)
        eventually(lambda: [p.name() for p in outside.children()] == ["systemd"], 30.0, "booted")
        [self._first] = outside.children()
        eventually(lambda: "running" in self.run("systemctl is-system-running || true"), 60.0, "up")
        text = (_SOURCE / "README.md").read_text()
        block = re.search(r"As root, in this directory:\n\n((?:    .*\n)+)", text)
        assert block is not None
        steps = re.sub(r".*pip install.*", ":", block[1])  # done above
        sockets = _SOCKETS.format(self.http_port, self.grpc_port)
        drop_in = "/etc/systemd/system/zmqtriton.socket.d"
        self.run(f"mkdir -p {drop_in}; printf '{sockets}' > {drop_in}/ports.conf")
        self.run(steps.replace("enable --now zmqtriton", f"enable --now {' '.join(self._UNITS)}"))
        eventually(self.is_ready, WITHIN_S, "ready")
        assert "model versions are ready" in self.run("systemctl status zmqtriton")

    def _install(self) -> None:
        """Make the root, with what the server needs, and its options and models."""
        machine = bare_roots.Machine(_ROOT)
        bare_roots.make_root(_RELEASE, machine, _PACKAGES)
        install = "python3 -m venv /opt/zmqtriton; /opt/zmqtriton/bin/pip install -q ."
        assert 0 == bare_roots.start(machine, "sh", "-ec", install).wait()
        units = _ROOT / "etc/systemd/system"
        for left in list(units.rglob("zmqtriton*")):  # of the machine before
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        shutil.rmtree(_ROOT / "srv/models", ignore_errors=True)
        for model in MODELS:
            copy = shutil.copytree(MODELS_DIRECTORY / model, _SOURCE / "my_models" / model)
            config = copy / "config.pbtxt"
            config.write_text(config.read_text().replace("@SCRATCH@", "/tmp"))
        be_patient(_SOURCE / "my_models")
        (_SOURCE / "environment").write_text(f'ZMQTRITON_OPTIONS="{self._options}"\n')

    def choose(self, *words: str) -> None:
        """Have the next server these words after its options, or none, by a drop-in."""
        options = f'ZMQTRITON_OPTIONS="{" ".join((self._options, *words))}"\n'
        (_ROOT / "etc/zmqtriton/others").write_text(options)
        drop_in = _ROOT / "etc/systemd/system/zmqtriton.service.d/others.conf"
        drop_in.parent.mkdir(exist_ok=True)
        drop_in.write_text(_DROP_IN)
        self.run("systemctl daemon-reload")

    def is_ready(self) -> bool:
        return status_of(f"http://127.0.0.1:{self.http_port}/v2/health/ready") == 200

    def run(self, script: str) -> str:
        """Run a script on the machine, in the directory of the units, and return what it prints."""
        enter = ["nsenter", "--target", str(self._first.pid), "--mount", "--pid", "--ipc", "--uts"]
        enter += ["--cgroup", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
        done = subprocess.run(
            [*enter, "sh", "-ec", f"cd /{_SOURCE.relative_to(_ROOT)}\n{script}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, f"{script}: {done.stdout} {self.log_text()[-3000:]}"
        return done.stdout

    def main_pid(self) -> int:
        """Return the pid of the server that systemd watches, as it has it there."""
        return int(self.run("systemctl show --property=MainPID --value zmqtriton"))

    def replace(self) -> float:
        before, begun_s = self.main_pid(), time.monotonic()
        self.run(" ".join(self.command))
        assert self.main_pid() != before
        is_gone = f"[ ! -d /proc/{before} ] && echo gone || true"
        eventually(lambda: self.run(is_gone), WITHIN_S, "the old server has gone")
        return time.monotonic() - begun_s

    def close(self) -> None:
        if self._outside.poll() is None:
            self._outside.kill()  # and the kernel all that runs there
            self._outside.wait()
        eventually(lambda: not self._first.is_running(), WITHIN_S, "the machine is off")
        words = ["unshare", "--mount", "sh", "-ec", _REMOVE_GROUP, "sh", self._group]
        subprocess.run(words, check=True)

    def log_text(self) -> str:
        return self.run("journalctl --unit=zmqtriton --output=cat || true")


class ByReload(OnMachine):
    """`systemctl reload`, by which the new server takes over from the old."""

    command = ("systemctl", "reload", "zmqtriton")


class ByReloadBehindSockets(ByReload):
    """The same behind the sockets of zmqtriton.socket, which are systemd's."""

    _UNITS = ("zmqtriton.socket", "zmqtriton.service")


class ByRestart(OnMachine):
    """`systemctl restart` behind the sockets of zmqtriton.socket."""

    command = ("systemctl", "restart", "zmqtriton")
    _UNITS = ("zmqtriton.socket", "zmqtriton.service")
