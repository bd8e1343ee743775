"""Copies a model to this machine: all of it or nothing, and only missing files.

A copy is a numbered directory, which gets its name only when it is complete. It holds the model's
files in a folder of the model's name, and a list of them. Files of an earlier copy are linked, not
fetched, so old and new copies share them.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from zmqtriton.sdk.wire import InternalError
from zmqtriton_extras.storage.file_stores import FileStore
from zmqtriton_extras.storage.trees import ModelTree, StoredObject, digest, missing_paths
from zmqtriton_standard.environments.reports import ByteCounter, Reporter

if TYPE_CHECKING:
    from zmqtriton_extras.storage.stores import ObjectStore

    Store = ObjectStore | FileStore

_LIST = "list.json"
#: Mode of copied directories: stubs of other users read them, if they may enter the root.
_DIRECTORY_MODE = 0o755
_FILE_MODE = 0o644
_CHUNK_BYTES = 8 << 20
_MAX_OPEN_FILES = 16
#: Maximum number of chunks that are read at the same time. They are in memory, together with
#: the bytes that the library reads ahead.
_MAX_CHUNKS_IN_FLIGHT = 8
_PROGRAMS = (b"\x7fELF", b"#!")
#: Bytes that stay free on the disk of the copies.
_ROOM = 64 << 20

T = TypeVar("T")
#: Makes the object that reports a copy's progress, given the copy's number and model.
MakeReporter = Callable[[int, str], Reporter]


class _ObjectsChanged(Exception):
    """Raised if an object is not the one that was listed."""


class _StoredFile(NamedTuple):
    """A file of an earlier copy."""

    size: int
    etag: str
    #: Time of the file's last change, in ns, when it was copied; a later one means that the model
    #: has changed the file.
    modified_ns: int


class Mirror:
    """The directory of all copies."""

    def __init__(self, root: str, make_reporter: MakeReporter) -> None:
        self._root = Path(root)
        self._make_reporter = make_reporter
        for left in (*self._root.glob("*.new"), *self._root.glob("*.gone")):
            shutil.rmtree(left, ignore_errors=True)
        self._file_semaphore = asyncio.Semaphore(_MAX_OPEN_FILES)
        self._chunk_semaphore = asyncio.Semaphore(_MAX_CHUNKS_IN_FLIGHT)

    def find_copy(self, model: str, url: str, digest: str) -> str:
        """Return the directory of an existing copy of the model, or ""."""
        for copy in self._copies(model):
            document = _document(copy)
            if (document.get("url"), document.get("digest")) == (url, digest):
                return str(copy / model)
        return ""

    def _copies(self, model: str) -> list[Path]:
        """Return the copies, the newest first."""
        copies = [path for path in self._root.glob("*/") if path.name.isdecimal()]
        copies.sort(key=lambda path: int(path.name), reverse=True)
        return [path for path in copies if (path / model).is_dir()]

    def remove(self, path: str) -> None:
        """Remove an unused copy: it is renamed at once, and a thread deletes its files."""
        copy = Path(path)
        gone = copy.with_suffix(".gone")
        if copy.parent == self._root and copy.name.isdecimal() and copy.is_dir():
            copy.rename(gone)
            threading.Thread(target=shutil.rmtree, args=(gone, True), daemon=True).start()

    async def copy_model(
        self, number: int, model: str, url: str, tree: ModelTree, store: Store
    ) -> str:
        """Copy a model and return the directory; "" if the objects were changed during the copy."""
        draft = self._root / f"{number}.new"
        try:
            (draft / model).mkdir(parents=True, mode=_DIRECTORY_MODE)
            reporter = self._make_reporter(number, model)
            await self._fetch_tree(draft / model, model, url, tree, store, reporter)
            if digest(await store.list_objects(model)) != tree.objects_digest:
                raise _ObjectsChanged
            if tree.directory:
                await asyncio.to_thread(
                    shutil.copytree, tree.directory, draft / model, dirs_exist_ok=True
                )
            _write_list(draft, model, url, tree)
            draft.rename(self._root / str(number))
        except _ObjectsChanged:
            return ""
        except OSError as error:
            reason = error.strerror or str(error)
            raise InternalError(
                f"{url}/{model} cannot be stored, is there room in {self._root}? {reason}"
            ) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)  # where it has not got its name
        return str(self._root / str(number) / model)

    async def _fetch_tree(
        self,
        place: Path,
        model: str,
        url: str,
        tree: ModelTree,
        store: Store,
        reporter: Reporter,
    ) -> None:
        for folder in {str(Path(path).parent) for path in tree.files} | set(tree.directories):
            (place / folder).mkdir(parents=True, exist_ok=True, mode=_DIRECTORY_MODE)
        left = self._link(place, model, url, tree)
        needed = sum(tree.files[path].size for path in left)
        free = shutil.disk_usage(place).free - _ROOM
        # files of the other stores are linked, where they can be
        if needed > free and not isinstance(store, FileStore):
            text = f"{url}/{model} needs {needed} bytes here, {max(free, 0)} are free in {place}"
            raise InternalError(text)
        counter = ByteCounter(f"Copying {url}/{model}", needed, reporter)
        await gather_or_cancel(
            self._fetch(store, f"{model}/{path}", tree.files[path], place / path, counter)
            for path in left
        )

    async def _fetch(
        self,
        store: Store,
        name: str,
        entry: StoredObject,
        target: Path,
        counter: ByteCounter,
    ) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        async with self._file_semaphore:
            if isinstance(store, FileStore):
                await store.place(name, target, counter.add)
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(target, flags, _FILE_MODE)
            try:
                if not isinstance(store, FileStore):
                    starts = range(0, entry.size, _CHUNK_BYTES)
                    await gather_or_cancel(
                        self._fetch_piece(store, name, entry, file, at, counter) for at in starts
                    )
                if os.pread(file, 4, 0).startswith(_PROGRAMS):
                    # stores know no modes, and an environment is of no use without
                    os.fchmod(file, _DIRECTORY_MODE)
            finally:
                os.close(file)

    async def _fetch_piece(
        self,
        store: ObjectStore,
        name: str,
        entry: StoredObject,
        file: int,
        start: int,
        counter: ByteCounter,
    ) -> None:
        async with self._chunk_semaphore:
            end = min(start + _CHUNK_BYTES, entry.size)
            data, tag = await store.read_range(name, start, end)
            if len(data) != end - start or (tag and entry.etag and tag != entry.etag):
                raise _ObjectsChanged
            written = 0
            while written < len(data):
                written += os.pwrite(file, data[written:], start + written)
            counter.add(written)

    def _link(self, place: Path, model: str, url: str, tree: ModelTree) -> list[str]:
        """Link existing files; return the paths of missing ones."""
        left = list(tree.files)
        for copy in self._copies(model):
            document = _document(copy)
            if document.get("url") != url:
                continue
            files = {path: _StoredFile(*entry) for path, entry in document["files"].items()}
            same = set(left) - set(missing_paths(tree, {p: k[:2] for p, k in files.items()}))
            taken = {p for p in same if _link_unchanged(copy / model / p, place / p, files[p])}
            left = [path for path in left if path not in taken]
        return left


async def gather_or_cancel(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Gather all results.

    If one fails, the others end before this raises, because their directory will be removed.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _link_unchanged(source: Path, target: Path, record: _StoredFile) -> bool:
    try:
        status = source.lstat()
        if (status.st_size, status.st_mtime_ns) != (record.size, record.modified_ns):
            return False
        os.link(source, target, follow_symlinks=False)
    except OSError:
        return False  # it is being removed, or the file system has no links
    return True


def _write_list(draft: Path, model: str, url: str, tree: ModelTree) -> None:
    files: Mapping[str, _StoredFile] = {
        path: _StoredFile(entry.size, entry.etag, (draft / model / path).lstat().st_mtime_ns)
        for path, entry in tree.files.items()
    }
    document = {"url": url, "digest": tree.digest, "files": files}
    (draft / _LIST).write_text(json.dumps(document))


def _document(copy: Path) -> dict[str, Any]:
    """Return the list of a copy's files from `_write_list`; empty if the copy is being removed."""
    try:
        document: dict[str, Any] = json.loads((copy / _LIST).read_text())
    except (OSError, ValueError):
        return {}
    return document
