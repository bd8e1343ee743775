"""A cache of contents by their digests, which all servers of a machine share.

A content is written next to its final name, under a lock, so that two servers fetch it once, and
the next one continues where a killed one has stopped. It gets its name when its digest is right,
and is never written to afterwards: models link to it. Blocks: for threads only.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from zmqtriton.sdk.process import runtime_places
from zmqtriton.sdk.wire import InternalError, errors
from zmqtriton_extras.storage.places import CACHE_VARIABLE
from zmqtriton_extras.storage.web import OpenContent, Unreachable

SHA256, GIT = "sha256", "git"
_CHUNK_BYTES = 1 << 20
_MODE = 0o444
#: Bytes that stay free on the disk of the cache.
_ROOM = 64 << 20
_ATTEMPTS = 5
_LOCK_PAUSE_S = 0.1

AddBytes = Callable[[int], None]


def new_hash(kind: str, size: int) -> hashlib._Hash:
    """Return the hash for a content; git's begins with the kind and size of the object."""
    if kind == GIT:
        return hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    return hashlib.sha256()


def default_root() -> Path:
    """Return the directory that the variable names, or systemd's, or the user's."""
    return Path(
        os.environ.get(CACHE_VARIABLE) or runtime_places.lasting("CACHE", "~/.cache"), "models"
    )


class BlobCache:
    """The cache of contents. Digests are texts, `sha256:HEX` or `git:HEX`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        with suppress(OSError):  # whatever is written next says why
            root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, digest: str) -> Path:
        return self.root / "blobs" / digest.replace(":", "/")

    def find(self, digest: str, size: int) -> Path | None:
        """Return the content if it is complete, and unchanged since its digest was checked."""
        path = self.path(digest)
        try:
            status = path.stat()
        except OSError:
            return None
        return path if (status.st_size, status.st_mtime) == (size, _stamp(digest)) else None

    # ------------------------------------------------------------- contents

    def fetch(
        self,
        digest: str,
        size: int,
        open_content: OpenContent,
        add: AddBytes,
        stop: threading.Event,
    ) -> Path:
        """Return the file of a content, and fetch it if it is missing; `add` counts all its bytes.

        Raises InternalError, also if the digest is wrong, and Cancelled after `stop`.
        """
        path = self.path(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.partial")
        while self.find(digest, size) is None:
            with open(partial, "a+b") as file:
                lock(file, stop)
                # another may have completed it, or given it up, before this lock was had
                if _is_at(file, partial) and self.find(digest, size) is None:
                    self._complete(file, digest, size, open_content, add, stop)
                    _seal(partial, digest)
                    os.rename(partial, path)
                    return path
        add(size)
        return path

    def _complete(
        self,
        file: IO[bytes],
        digest: str,
        size: int,
        open_content: OpenContent,
        add: AddBytes,
        stop: threading.Event,
    ) -> None:
        """Fetch the rest, and check the digest of the whole."""
        _check_room(self.root, size - os.fstat(file.fileno()).st_size)
        kind, _, expected = digest.partition(":")
        was_begun = os.fstat(file.fileno()).st_size > 0
        hashed = new_hash(kind, size)
        file.seek(0)
        for piece in _pieces(file):
            hashed.update(piece)
            add(len(piece))
        failure = "it ends too early"
        for _ in range(_ATTEMPTS):
            done = file.seek(0, os.SEEK_END)
            if done >= size:
                break
            answer, start = open_content(done)
            with answer:
                if start != done:
                    # it gives the whole only
                    file.truncate(0)
                    add(-done)
                    hashed = new_hash(kind, size)
                failure = _append(answer, file, hashed, size, add, stop)
        done = file.seek(0, os.SEEK_END)
        if done < size:
            raise Unreachable(failure)
        if hashed.hexdigest() != expected or done > size:
            file.truncate(0)
            add(-done)
            if was_begun:
                # its beginning may be another's
                self._complete(file, digest, size, open_content, add, stop)
                return
            raise InternalError(f"the download is damaged, load again: its digest must be {digest}")

    def adopt(self, path: Path, digest: str, size: int) -> Path | None:
        """Link a content that another program has fetched into the cache, if it has the digest.

        Return its path, which is `path` itself if a link is not possible; None with another digest.
        """
        kind, _, expected = digest.partition(":")
        hashed = new_hash(kind, size)
        with open(path, "rb") as file:
            for piece in _pieces(file):
                hashed.update(piece)
        if hashed.hexdigest() != expected:
            return None
        own = self.path(digest)
        own.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path.resolve(), own)
            os.utime(own, (_stamp(digest), _stamp(digest)))
        except OSError:
            return path  # of another disk, or another user
        return own

    def keep(self, source: IO[bytes], size: int, draft: Path, stop: threading.Event) -> str:
        """Store a content that is a part of another one, and return its digest.

        `draft` is the path of a temporary file for it.
        """
        folder = self.root / "blobs" / SHA256
        folder.mkdir(parents=True, exist_ok=True)
        _check_room(folder, size)
        hashed = hashlib.sha256()
        draft.unlink(missing_ok=True)
        with open(draft, "wb") as file:
            for piece in _pieces(source):
                _check_stop(stop)
                hashed.update(piece)
                file.write(piece)
        digest = f"{SHA256}:{hashed.hexdigest()}"
        if self.find(digest, size) is None:
            _seal(draft, digest)
            os.rename(draft, self.path(digest))
        else:
            draft.unlink()
        return digest

    def place(self, source: Path, target: Path) -> None:
        """Make a content a file of a model, as a link, or as a copy on another disk."""
        source = source.resolve()
        try:
            os.link(source, target)
        except OSError:
            _check_room(target.parent, source.stat().st_size)
            shutil.copyfile(source, target)

    # ----------------------------------------------------------- what is known

    def read_note(self, name: str) -> Any:
        """Return a small JSON document of the cache; None without one."""
        try:
            return json.loads((self.root / name).read_text())
        except (OSError, ValueError):
            return None

    def write_note(self, name: str, content: Any) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.draft")
        draft.write_text(json.dumps(content))
        os.rename(draft, path)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(_CHUNK_BYTES), b"")


def _append(
    answer: http.client.HTTPResponse,
    file: IO[bytes],
    hashed: hashlib._Hash,
    size: int,
    add: AddBytes,
    stop: threading.Event,
) -> str:
    """Append the bytes of a response, and return why they ended early."""
    done = file.seek(0, os.SEEK_END)
    while done <= size:
        try:
            piece = answer.read(_CHUNK_BYTES)
        except (OSError, http.client.HTTPException) as error:
            return str(error) or type(error).__name__
        if not piece:
            break
        _check_stop(stop)
        hashed.update(piece)
        file.write(piece)
        file.flush()
        done += len(piece)
        add(len(piece))
    return "it ends too early"


def _stamp(digest: str) -> int:
    """Return a modification time in seconds, which a file keeps unless it is written to.

    It depends on the content, so that copies of different contents differ in their times.
    """
    return int(digest.partition(":")[2][:7], 16)


def _seal(path: Path, digest: str) -> None:
    path.chmod(_MODE)
    os.utime(path, (_stamp(digest), _stamp(digest)))


def _check_stop(stop: threading.Event) -> None:
    if stop.is_set():
        raise errors.Cancelled("nobody wants it any more")


def lock(file: IO[bytes], stop: threading.Event) -> None:
    """Lock a file that other servers also lock. Raises Cancelled after `stop`."""
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            _check_stop(stop)
            time.sleep(_LOCK_PAUSE_S)


def _is_at(file: IO[bytes], path: Path) -> bool:
    """True if the open file still has this name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def _check_room(directory: Path, size: int) -> None:
    free = shutil.disk_usage(directory).free - _ROOM
    if size > free:
        raise InternalError(
            f"it needs {size} bytes, but {max(free, 0)} are free in {directory}: free some"
        )
