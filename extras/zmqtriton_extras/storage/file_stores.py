"""A repository at a revision that never changes; its files are fetched whole.

A subclass asks the server, in threads. A tag or branch is resolved only once, so that later
questions are about the same files.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from zmqtriton.sdk.wire import InternalError, ZmqTritonError
from zmqtriton_extras.storage.blobs import AddBytes, BlobCache
from zmqtriton_extras.storage.places import ArtifactPath, HubPath
from zmqtriton_extras.storage.trees import InvalidObjectName, StoredObject
from zmqtriton_extras.storage.web import Unreachable

#: The age of files that never change.
_LONG_AGO = datetime(2000, 1, 1, tzinfo=timezone.utc)
_THREADS = ThreadPoolExecutor(8, "fetch")
_CONFIG = "config.pbtxt"

T = TypeVar("T")


class RemoteFile(NamedTuple):
    """A file of a repository."""

    size: int
    #: "" for an empty folder, which may be a version.
    digest: str
    #: Path of the file on the server; of a link in an image, the path of its target.
    source: str
    #: Why it cannot be used, or "".
    problem: str = ""


class FileStore(ABC):
    """The files of one repository; errors of all methods name the repository and the failure."""

    #: Folders that may contain the models: the first that exists counts. If none does, the whole
    #: repository contains them.
    FOLDERS: tuple[str, ...] = ()

    def __init__(self, place: HubPath | ArtifactPath, cache: BlobCache) -> None:
        self._url = place.url
        self._cache = cache
        #: The model whose source it is, or "".
        self.owner = ""
        #: The commit or digest; "" until it is resolved.
        self.revision = ""
        self._files: dict[str, RemoteFile] | None = None
        self._turn = asyncio.Lock()

    # ------------------------------------------------- what a subclass knows

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the model, if the repository is one."""

    @abstractmethod
    def _resolve(self, stop: threading.Event) -> str:
        """Return the revision that the address refers to now."""

    @abstractmethod
    def _list(self, stop: threading.Event) -> dict[str, RemoteFile]:
        """Return the files of the revision by path."""

    @abstractmethod
    def _fetch(self, file: RemoteFile, add: AddBytes, stop: threading.Event) -> Path:
        """Return the path of the file's content in the cache; fetch it if it is missing."""

    # ------------------------------------------------------ what stores can do

    async def open(self, revision: str, warn: Callable[[str], None]) -> None:
        """Resolve the revision, unless it is given; without an answer, use the last known one."""
        note = f"revisions/{_as_name(self._url)}.json"
        if revision:
            self.revision = revision
            return
        try:
            self.revision = await self._in_thread(self._resolve)
        except Unreachable as error:
            last_time = self._cache.read_note(note)
            if not last_time:
                raise
            warn(f"{error.text}; the revision of the last time is used: {last_time}")
            self.revision = last_time
        else:
            await self._in_thread(lambda stop: self._cache.write_note(note, self.revision))

    async def list_objects(self, folder: str = "") -> list[StoredObject]:
        """List all objects in a folder of the repository and below, by path."""
        start = f"{folder}/" if folder else ""
        objects = []
        for path, file in (await self._known_files()).items():
            is_version = path.partition("/")[2].isdecimal()
            if path.startswith(start) and (file.digest or file.problem or is_version):
                if file.problem:
                    raise InvalidObjectName(f"{self._url} has '{path}', {file.problem}")
                objects.append(StoredObject(path[len(start) :], file.size, file.digest, _LONG_AGO))
        return sorted(objects)

    async def list_folders(self) -> list[str]:
        """List the folders directly in the repository that are not empty."""
        paths = await self._known_files()
        return sorted({path.partition("/")[0] for path in paths if "/" in path})

    async def place(self, path: str, target: Path, add: AddBytes) -> None:
        """Make a file of the repository a file on this machine, which must not be written to."""
        file = (await self._known_files())[path]
        loop = asyncio.get_running_loop()

        def run(stop: threading.Event) -> None:
            source = self._fetch(file, lambda n: _tell(loop, add, n), stop)
            self._cache.place(source, target)

        await self._in_thread(run)

    async def _known_files(self) -> dict[str, RemoteFile]:
        async with self._turn:
            if self._files is None:
                listed = await self._in_thread(self._list)
                self._files = arrange(listed, self.FOLDERS, self.name, self.owner)
            return self._files

    async def _in_thread(self, function: Callable[[threading.Event], T]) -> T:
        stop = threading.Event()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(_THREADS, function, stop)
        except ZmqTritonError as error:
            if self._url not in error.text:
                error.args = (f"{self._url} cannot be read: {error.text}",)
            raise
        except OSError as error:
            reason = error.strerror or str(error)
            text = f"{self._url} cannot be kept in {self._cache.root}: {reason}"
            raise InternalError(text) from error
        finally:
            stop.set()


def _tell(loop: asyncio.AbstractEventLoop, add: AddBytes, count: int) -> None:
    loop.call_soon_threadsafe(add, count)


def _as_name(url: str) -> str:
    return "".join(sign if sign.isalnum() or sign in ".-" else "_" for sign in url)[:200]


def arrange(
    files: dict[str, Any], folders: Iterable[str], name: str, owner: str = ""
) -> dict[str, Any]:
    """Return the files of a model repository by path.

    It is in one of the folders, or else at the top. With a configuration or a version at its top it
    is a model with this name. An owner has its own folder, or everything without such a folder.
    """
    for folder in folders:
        start = f"{folder}/"
        inside = {path[len(start) :]: f for path, f in files.items() if path.startswith(start)}
        if inside:
            files = inside
            break
    tops = {path.partition("/") for path in files}
    if owner:
        is_among_others = any(top == owner and slash for top, slash, _ in tops)
        return files if is_among_others else {f"{owner}/{path}": f for path, f in files.items()}
    if any(top == _CONFIG or (slash and top.isdecimal()) for top, slash, _ in tops):
        return {f"{name}/{path}": file for path, file in files.items()}
    return files
