"""The stores of the storage process: one at a revision is opened once and stays at it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from zmqtriton_addons.storage.blobs import BlobCache, default_root
from zmqtriton_addons.storage.file_stores import FileStore
from zmqtriton_addons.storage.places import ArtifactPath, BucketPath, HubPath, parse_url

if TYPE_CHECKING:
    from zmqtriton_addons.storage.stores import ObjectStore


class Stores:
    def __init__(self, warn: Callable[[str], None]) -> None:
        """Set up; `warn` takes lines for the log."""
        self._warn = warn
        #: The keys are its URL and the model whose source it is, or "".
        self._opened: dict[tuple[str, str], FileStore] = {}
        self._turn = asyncio.Lock()

    @property
    def revisions(self) -> dict[str, str]:
        """The revisions of the repositories that have one, by URL."""
        return {url: store.revision for (url, _), store in self._opened.items()}

    async def open(
        self, url: str, revisions: Mapping[str, str], owner: str = ""
    ) -> ObjectStore | FileStore:
        """Open a repository, at its revision if that is known. Raises ZmqTritonError."""
        place = parse_url(url)
        # libraries of stores are extras, and slow to import
        if isinstance(place, BucketPath):
            from zmqtriton_addons.storage.stores import ObjectStore

            return ObjectStore(place)
        async with self._turn:
            if (url, owner) not in self._opened:
                store = _file_store(place)
                store.owner = owner
                revision = revisions.get(url) or self.revisions.get(url, "")
                await store.open(revision, self._warn)
                self._opened[url, owner] = store
            return self._opened[url, owner]


def _file_store(place: HubPath | ArtifactPath) -> FileStore:
    cache = BlobCache(default_root())
    if isinstance(place, ArtifactPath):
        from zmqtriton_addons.storage.registry import RegistryStore

        return RegistryStore(place, cache)
    from zmqtriton_addons.storage.hub import HubStore

    return HubStore(place, cache)
