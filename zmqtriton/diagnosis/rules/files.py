"""Repositories, disks and files with secrets."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from zmqtriton.diagnosis.facts.readings import ROOT
from zmqtriton.findings import Finding
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import TokenFileError

_LEAST_FREE_BYTES = 200 << 20
_LEAST_BYTES = 1 << 20


class FileSystem(NamedTuple):
    """The file system of a directory that there is or will be."""

    free_bytes: int
    is_writable: bool
    can_execute: bool
    #: The directory, or the nearest one above it that there is.
    folder: str = ""

    @staticmethod
    def of(path: str) -> FileSystem:
        folder = Path(path).absolute()
        # not Path.is_dir(), which raises where looking is forbidden
        while not os.path.isdir(folder) and folder != folder.parent:
            folder = folder.parent
        system = os.statvfs(folder)
        return FileSystem(
            system.f_bavail * system.f_frsize,
            os.access(folder, os.W_OK | os.X_OK),
            not system.f_flag & os.ST_NOEXEC,
            str(folder),
        )

    def full(
        self, folder: str, use: str, effect: str, least_bytes: int = _LEAST_FREE_BYTES
    ) -> Iterator[Finding]:
        """Yield a warning if less is free than this."""
        if self.free_bytes < least_bytes:
            yield Finding.warning(
                f"the disk of {folder}, for {use}, has {self.free_bytes >> 20} MiB left",
                f"{effect} Free some of it.",
                f"df -h {self.folder}",
            )

    @staticmethod
    def judge_lines(what: str, path: str, option: str) -> Iterator[Finding]:
        """Judge the directory of a file that gets lines; without a path there is no file."""
        if not path:
            return
        folder = os.path.dirname(os.path.abspath(path))
        place = FileSystem.of(folder)
        if not os.path.isdir(folder):  # the server makes none for it
            yield Finding.error(
                f"{what} cannot be written: there is no directory {folder}",
                f"Make it, or name another file with {option}.",
                f"mkdir -p {folder}",
            )
        elif not place.is_writable:
            yield Finding.error(
                f"{what} cannot be written: this user may not write to {folder}",
                f"Correct the rights, or name another file with {option}.",
                f"ls -ld {folder}",
            )
        else:
            yield from place.full(folder, what, "Lines are lost when it is full.")


def judge_elsewhere(pid: int) -> Iterator[Finding]:
    yield Finding.warning(
        f"paths of the server (pid {pid}) lead elsewhere from here: it has other mounts, as "
        "containers have",
        "Its disks, certificates and directories cannot be judged from here. Ask there, as with "
        "`docker exec`.",
        f"nsenter --target {pid} --mount zmqtriton-ctl explain",
    )


def judge_silent(paths: Iterable[str]) -> Iterator[Finding]:
    """Tell of repositories that are not looked at any more, since they do not answer."""
    for path in paths:
        yield Finding.error(
            f"the model repository {path} does not answer: its file system hangs, or is very slow",
            "Look after that file system; a server goes on with the models that it has loaded.",
            "cat /proc/mounts",
        )


def judge_repositories(paths: Iterable[str]) -> Iterator[Finding]:
    for path in paths:
        if "://" in path:
            continue
        try:
            os.listdir(path)
        except OSError as problem:
            yield Finding.error(
                f"the model repository {path} cannot be used: {problem.strerror or problem}",
                "Name a directory that has a directory for each model, and that this user can "
                "read.",
                f"namei -l {shlex.quote(path)}",
            )


def judge_log(path: str, pid: int = 0, root: Path = ROOT) -> Iterator[Finding]:
    """Judge the log file of a server, before its start or while it runs."""
    if path and pid and _is_deleted(path, pid, root):
        yield Finding.error(
            f"the log is lost: {path} was deleted while the server has it open",
            "At this signal the server makes the directory and the file again.",
            f"kill -HUP {pid}",
        )
    else:
        yield from FileSystem.judge_lines("the log", path, "--log-file")


def _is_deleted(path: str, pid: int, root: Path) -> bool:
    """Return True if the process writes to a file that had this path."""
    try:
        descriptors = list((root / "proc" / str(pid) / "fd").iterdir())
    except PermissionError:  # root alone sees them; the server made the file at its start
        return os.path.isabs(path) and _is_missing(path)
    except OSError:
        return False
    for descriptor in descriptors:
        with suppress(OSError):  # closed meanwhile
            if os.readlink(descriptor) == f"{path} (deleted)":
                return True
    return False


def _is_missing(path: str) -> bool:
    """Return True if the file is missing, and not merely hidden from this user."""
    try:
        os.stat(path)
    except OSError as problem:
        return problem.errno == errno.ENOENT
    return False


def judge_temporary(find_folder: Callable[[], Path]) -> Iterator[Finding]:
    """Judge the directory for servers' runtime directories; there may be none."""
    try:
        folder = str(find_folder())
    except OSError as problem:
        yield Finding.error(
            f"no runtime directory can be made: {problem.strerror}",
            "Name one with --runtime-directory, or a writable TMPDIR.",
            "ls -ld /run /tmp",
        )
        return
    effect = "A server cannot start when it is full."
    yield from FileSystem.of(folder).full(folder, "runtime directories", effect, _LEAST_BYTES)


def judge_secret_files(options: Mapping[str, Any]) -> Iterator[Finding]:
    path = options.get("tokens", "")
    if not path:
        return
    try:
        token_file.Grant.read_all(path)
        can_be_read = is_public(path)
    except (TokenFileError, OSError) as problem:
        yield Finding.error(
            f"--tokens: {path} cannot be used: {problem}",
            "The server does not start with it.",
            f"ls -l {path}",
        )
        return
    if can_be_read:
        yield Finding.warning(
            f"every user of this machine can read {path}, the file of --tokens",
            "Its readers may learn who has access.",
            f"chmod 600 {path}",
        )


def is_public(path: str) -> bool:
    return bool(os.stat(path).st_mode & stat.S_IROTH)
