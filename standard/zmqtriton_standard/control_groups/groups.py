"""Control groups: one for the server's own processes, one for each model, one for each instance.

The kernel kills an instance that exceeds its memory, and shares the cores by the weights of models.
All groups are made below the server's own group, and are removed when the server ends; if it was
killed, the next server removes them at its start.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
from contextlib import suppress
from pathlib import Path

from zmqtriton.sdk.models import Quota

#: A group of systemd's is its own unless it was delegated.
_SYSTEMD_UNITS = (".service", ".scope", ".slice")


def find_own_group(proc: Path = Path("/proc")) -> Path:
    """Return the directory of this process's group in the hierarchy of version 2.

    Raises OSError.
    """
    root, mounted_at = _mount((proc / "self" / "mountinfo").read_text())
    lines = (proc / "self" / "cgroup").read_text().splitlines()
    path = next((line[3:] for line in lines if line.startswith("0::")), "/")
    if root != "/" and (path == root or path.startswith(f"{root}/")):
        path = path.removeprefix(root)  # a container sees its own group as the root
    return Path(mounted_at) / path.lstrip("/")


def _mount(mounts: str) -> tuple[str, str]:
    """Return the mounted control group, and the directory where it is mounted."""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            words = before.split()
            return words[3], words[4]
    raise OSError(
        "there are no control groups of version 2; boot with systemd.unified_cgroup_hierarchy=1"
    )


def check_own_group(own: Path, pid: int) -> None:
    """Check that process `pid` may make groups below `own`, its group. Raises OSError."""
    if not (own / "cgroup.events").exists():
        raise OSError("the server runs in the root of all control groups; start it under systemd")
    if "memory" not in _words(own / "cgroup.controllers"):
        raise OSError(f"{own} does not have the controller memory; enable it in its parent")
    if own.name.endswith(_SYSTEMD_UNITS) and not _is_delegated(own):
        raise OSError(f"systemd has not delegated {own}: set Delegate=yes")
    # Who has groups below has no processes, so whatever is here must be ours to move.
    others = {int(word) for word in _words(own / "cgroup.procs")} - {pid}
    if others:
        raise OSError(
            f"{own} has other processes ({len(others)}): start the server in a group of its own"
        )
    if not os.access(own, os.W_OK) or not os.access(own / "cgroup.procs", os.W_OK):
        raise OSError(f"{own} is not writable; its owner must be the server's user")


def _is_delegated(group: Path) -> bool:
    owner = group.stat().st_uid
    if owner and owner == os.geteuid():
        return True
    return any(_has_mark(group, name) for name in ("user.delegate", "trusted.delegate"))


def _has_mark(group: Path, name: str) -> bool:
    try:
        return os.getxattr(group, name) == b"1"
    except OSError:
        return False


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


_log = logging.getLogger(__name__)

_SERVER = "zmqtriton-server"
_MODEL = "zmqtriton-model-"
#: Prefix of the group of a server that a reload has started to take over. Its pid follows; the
#: groups of its models are inside.
_NEXT = "zmqtriton-next-"
#: Group of the commands of ExecReload=, made by systemd if the service's group is delegated.
_OF_RELOADS = ".control"
#: Broker and frontends serve all models, and must not wait for any.
_SERVER_CPU_WEIGHT = 10 * Quota().cpu_weight
_ODD_CHARACTERS = re.compile(r"[^A-Za-z0-9_.-]")
_MAX_CHARACTERS = 100
#: The second counts kills for the limits of groups above, too.
_LIMIT_REACHED = re.compile(r"^oom [1-9]", re.MULTILINE)
_KILLED = re.compile(r"^oom_kill [1-9]", re.MULTILINE)


def prepare_control_groups(proc: Path = Path("/proc")) -> ControlGroups:
    """Move the server into a group of its own, so that models get groups next to it.

    Call this before the process has children. Raises OSError.
    """
    own, pid = find_own_group(proc), os.getpid()
    if own.name == _OF_RELOADS:
        own = leave_reload(own.parent, pid)
    check_own_group(own, pid)
    groups = ControlGroups(own, pid)
    groups.begin()
    return groups


def leave_reload(service: Path, pid: int) -> Path:
    """Move the process from systemd's group for reloads into a new group next to it.

    The running server, which this one replaces, has its groups in the same place. Raises OSError.
    """
    for left in (*service.glob(f"{_NEXT}*/*/"), *service.glob(f"{_NEXT}*/")):
        with suppress(OSError):  # a server is in it
            left.rmdir()
    own = service / f"{_NEXT}{pid}"
    own.mkdir()
    _write(own / "cgroup.procs", str(pid))
    return own


class ControlGroups:
    def __init__(self, own: Path, pid: int) -> None:
        self.own = own
        self._pid = pid
        self._numbers = itertools.count(1)
        #: Directory of each model's group, by the model's name.
        self._models: dict[str, Path] = {}
        #: Directory of each instance's group, by the serial of its process.
        self._instances: dict[int, Path] = {}
        #: Groups to remove once their last processes have ended.
        self._leaving: set[Path] = set()
        self._has_cpu = False

    def begin(self) -> None:
        """Make the group of the server. Raises OSError."""
        # CPython 3.10 finds files by "*/", too
        for left in filter(
            Path.is_dir, (*self.own.glob(f"{_MODEL}*/*"), *self.own.glob("zmqtriton-*"))
        ):
            left.rmdir()
        server = self.own / _SERVER
        server.mkdir()
        try:
            _write(server / "cgroup.procs", str(self._pid))
            _write(self.own / "cgroup.subtree_control", "+memory")
        except OSError:
            self._end()
            raise

    # --------------------------------------------------------------- instances

    def add(self, serial: int, pid: int, quota: Quota) -> None:
        """Put the process of an instance into a group with its model's limits. Raises OSError."""
        instance = self._model_group(quota.model) / str(serial)
        instance.mkdir()
        self._instances[serial] = instance
        if quota.max_memory_bytes:
            _write(instance / "memory.max", str(quota.max_memory_bytes))
            # Whoever leaks would only make the disk busy; and no process is of use without others.
            _write_if_there(instance / "memory.swap.max", "0")
            _write(instance / "memory.oom.group", "1")
        _write(instance / "cgroup.procs", str(pid))
        if self._has_cpu:  # a reload may have taken the model's own away
            self.set_cpu_weight(quota.model, quota.cpu_weight)

    def _model_group(self, model: str) -> Path:
        group = self._models.get(model)
        if group is None:
            name = _ODD_CHARACTERS.sub("_", model)[:_MAX_CHARACTERS]
            group = self.own / f"{_MODEL}{next(self._numbers)}-{name}"
            group.mkdir()
            self._models[model] = group
            _write(group / "cgroup.subtree_control", "+memory")
        return group

    def set_cpu_weight(self, model: str, weight: int) -> None:
        """Set the weight of a model's share of the cores, among busy models. Raises OSError."""
        if not self._has_cpu:
            _write(self.own / "cgroup.subtree_control", "+cpu")
            _write(self.own / _SERVER / "cpu.weight", str(_SERVER_CPU_WEIGHT))
            self._has_cpu = True
        _write(self._model_group(model) / "cpu.weight", str(weight))

    def has(self, serial: int) -> bool:
        """True if the instance has a group."""
        return serial in self._instances

    def memory_bytes(self, serial: int) -> int:
        """Return the memory of an instance that has a group."""
        return int((self._instances[serial] / "memory.current").read_text())

    def was_killed_for_memory(self, serial: int) -> bool:
        """True if the kernel has killed the instance because of its own limit."""
        group = self._instances.get(serial)
        try:
            events = (group / "memory.events").read_text() if group is not None else ""
        except OSError:
            return False
        return bool(_LIMIT_REACHED.search(events) and _KILLED.search(events))

    def remove(self, serial: int) -> None:
        """Remove the group of a dead instance, and kill the processes that it has left there."""
        group = self._instances.pop(serial, None)
        if group is None:
            return
        with suppress(OSError):
            _write_if_there(group / "cgroup.kill", "1")
        self._leaving.add(group)
        self.remove_empty()

    def remove_empty(self) -> None:
        """Remove empty groups. Call this once a second."""
        for group in list(self._leaving):
            with suppress(OSError):
                group.rmdir()
                self._leaving.discard(group)
        # the groups of its instances decide whether a model's is empty
        for model, group in list(self._models.items()):
            if group not in {instance.parent for instance in self._instances.values()}:
                with suppress(OSError):
                    group.rmdir()
                    del self._models[model]

    # -------------------------------------------------------------------- end

    def close(self) -> None:
        """Remove all groups; the processes of models are dead."""
        for serial in list(self._instances):
            self.remove(serial)
        self.remove_empty()
        self._end()

    def _end(self) -> None:
        """Move this process back to `own`, and remove the server's group."""
        try:
            for controller in ("memory", "cpu"):
                with suppress(OSError):  # it was not there
                    _write(self.own / "cgroup.subtree_control", f"-{controller}")
            _write(self.own / "cgroup.procs", str(self._pid))
            (self.own / _SERVER).rmdir()
        except OSError as error:
            _log.debug("control groups are left in %s: %s", self.own, error)


def _write(file: Path, text: str) -> None:
    with open(file, "w", encoding="ascii") as writing:
        writing.write(text)


def _write_if_there(file: Path, text: str) -> None:
    if file.exists():
        _write(file, text)
