"""The cache of unpacked and built environments: one entry each, named by content.

An entry is made in its final place, because environments contain their own path. It counts only
once its `ready` file exists, which is written last. The process that makes an entry holds the
entry's lock, so two loads in any processes make it only once. If that process dies, the next
process removes the incomplete entry.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from zmqtriton.sdk.models import file_state, users
from zmqtriton.sdk.process import StepProgress
from zmqtriton.sdk.wire import InternalError
from zmqtriton_standard.environments.reports import ByteCounter, Reporter

ARCHIVES, BUILT, SUPPORT = "archives", "built", "support"
KINDS = (ARCHIVES, BUILT, SUPPORT)

_READY = "ready"
_TREE = "tree"
_DIGESTS = "digests"
_CHUNK = 1 << 20


class CacheEntry(NamedTuple):
    kind: str
    name: str
    #: its directory
    tree: str
    #: what it was made from, and when
    source: str
    created_s: float


class EnvironmentCache:
    def __init__(self, root: str) -> None:
        """Open the cache. Raises InternalError if it cannot be written to."""
        self.root = Path(root or users.default_root())
        try:
            for folder in (*KINDS, _DIGESTS):
                (self.root / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InternalError(
                f"environments cannot be kept in {self.root}: {error.strerror}; name another "
                "directory with --environment-directory"
            ) from error
        if self.root.stat().st_uid != os.geteuid():
            raise InternalError(
                f"{self.root} belongs to another user, who could change the code of models; name "
                "another directory with --environment-directory"
            )

    def tree_path(self, kind: str, name: str) -> Path:
        return self.root / kind / name / _TREE

    def is_ready(self, kind: str, name: str) -> bool:
        return (self.root / kind / name / _READY).exists()

    def get_or_create(
        self,
        kind: str,
        name: str,
        source: str,
        fill: Callable[[Path], None],
        reporter: Reporter,
    ) -> Path:
        """Return the entry's directory; if there is no entry, `fill` fills an empty directory."""
        if self.is_ready(kind, name):
            return self.tree_path(kind, name)
        with self._entry_lock(kind, name, reporter):
            if not self.is_ready(kind, name):
                self.remove_incomplete()
                self._create_entry(kind, name, source, fill)
        return self.tree_path(kind, name)

    def _create_entry(
        self, kind: str, name: str, source: str, fill: Callable[[Path], None]
    ) -> None:
        home = self.root / kind / name
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(mode=0o700)
        tree = home / _TREE
        tree.mkdir()
        try:
            fill(tree)
        except BaseException:
            shutil.rmtree(home, ignore_errors=True)
            raise
        draft = home / f"{_READY}.new"
        draft.write_text(json.dumps({"source": source, "made_s": time.time()}))
        draft.rename(home / _READY)

    def invalidate(self, kind: str, name: str) -> None:
        """Drop an entry that has proved useless."""
        (self.root / kind / name / _READY).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _entry_lock(self, kind: str, name: str, reporter: Reporter) -> Iterator[None]:
        # never removed: a process that waits for it would hold a file that nobody else can find
        with open(self.root / kind / f"{name}.lock", "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                text = "waiting for another process that makes the same environment"
                reporter.log("I", text)
                reporter.progress(StepProgress(text))
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def remove_incomplete(self) -> int:
        """Remove unfinished entries that no process is making; return their number."""
        unfinished = [home for home in self._homes() if not (home / _READY).exists()]
        return sum(map(_remove_unless_locked, unfinished))

    def _homes(self) -> list[Path]:
        """Return the directories of all entries, by kind and name."""
        folders = [sorted((self.root / kind).iterdir()) for kind in KINDS]
        return [home for folder in folders for home in folder if home.is_dir()]

    # --------------------------------------------------------------- for people

    def entries(self) -> list[CacheEntry]:
        entries = []
        for home in self._homes():
            if (home / _READY).exists():
                about: dict[str, Any] = json.loads((home / _READY).read_text())
                entry = home.parent.name, home.name, str(home / _TREE)
                entries.append(CacheEntry(*entry, about["source"], about["made_s"]))
        return entries

    def remove_all(self) -> int:
        """Remove all entries; return their number.

        Raises InternalError while a server uses them.
        """
        with open(self.root / users.IN_USE, "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InternalError(
                    f"a running server uses the environments in {self.root}; stop it first"
                ) from None
            removed = sum(map(_remove_unless_locked, self._homes()))
            for digest in (self.root / _DIGESTS).iterdir():
                digest.unlink(missing_ok=True)
        return removed

    # ------------------------------------------------------------------ digests

    def file_digest(self, file: Any, path: str, reporter: Reporter) -> str:
        """Return the digest of an open file; it is remembered while the file looks the same."""
        stat = os.fstat(file.fileno())
        seen = f"{path} {file_state(stat)} {stat.st_dev}"
        name = hashlib.sha256(seen.encode(errors="surrogateescape")).hexdigest()[:32]
        note = self.root / _DIGESTS / name
        # a file that was written a moment ago may still change within the same tick of its clock
        is_settled = time.time() - max(stat.st_mtime, stat.st_ctime) > 2
        if is_settled and note.exists():
            return note.read_text()
        digest = _hash(file, stat.st_size, path, reporter)
        if is_settled:
            note.write_text(digest)
        return digest


def _hash(file: Any, size: int, path: str, reporter: Reporter) -> str:
    counter = ByteCounter(f"Reading {path}", size, reporter)
    digest = hashlib.sha256()
    file.seek(0)
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
        counter.add(len(chunk))
    file.seek(0)
    return digest.hexdigest()[:32]


def _remove_unless_locked(home: Path) -> bool:
    with open(f"{home}.lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        # first, so that a half removed entry never counts
        (home / _READY).unlink(missing_ok=True)
        shutil.rmtree(home, ignore_errors=True)
        return True
