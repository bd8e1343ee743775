"""Finds the server's own control group, and says why there can be none below it.

Reads files only; `control_groups` makes groups.
"""

from __future__ import annotations

import os
from pathlib import Path

from zmqtriton.supervisor import NoControlGroups

#: A group of systemd's is its own unless it was delegated.
_SYSTEMD_UNITS = (".service", ".scope", ".slice")
_DELEGATED = ("user.delegate", "trusted.delegate")


def find_own_group(proc: Path = Path("/proc")) -> Path:
    """Return the directory of this process's group in the hierarchy of version 2.

    Raises NoControlGroups.
    """
    root, mounted_at = _mount((proc / "self" / "mountinfo").read_text())
    lines = (proc / "self" / "cgroup").read_text().splitlines()
    path = next((line[3:] for line in lines if line.startswith("0::")), "/")
    if root != "/" and (path == root or path.startswith(f"{root}/")):
        path = path.removeprefix(root)  # a container sees its own group as the root
    return Path(mounted_at) / path.lstrip("/")


def _mount(mounts: str) -> tuple[str, str]:
    """Return which group is mounted, and where."""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            words = before.split()
            return words[3], words[4]
    raise NoControlGroups("there are no control groups of version 2")


def check_own_group(own: Path, pid: int) -> None:
    """Check that this process may make groups below its own. Raises NoControlGroups."""
    if not (own / "cgroup.events").exists():
        raise NoControlGroups("the server runs in the root of all control groups")
    if "memory" not in _words(own / "cgroup.controllers"):
        raise NoControlGroups(f"{own} does not have the controller memory")
    if own.name.endswith(_SYSTEMD_UNITS) and not _is_delegated(own):
        raise NoControlGroups(f"systemd has not delegated {own} (Delegate=yes)")
    # Who has groups below has no processes, so whatever is here must be ours to move.
    others = {int(word) for word in _words(own / "cgroup.procs")} - {pid}
    if others:
        raise NoControlGroups(f"{own} has other processes ({len(others)})")
    if not os.access(own, os.W_OK) or not os.access(own / "cgroup.procs", os.W_OK):
        raise NoControlGroups(f"{own} is not writable")


def _is_delegated(group: Path) -> bool:
    owner = group.stat().st_uid
    if owner and owner == os.geteuid():
        return True
    return any(_has_mark(group, name) for name in _DELEGATED)


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
