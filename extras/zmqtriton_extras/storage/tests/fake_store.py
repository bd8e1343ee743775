"""A store in memory, in place of `stores.Store`; counts what is read of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

from zmqtriton_extras.storage.trees import StoredObject
from zmqtriton_floor.errors import InternalError

#: Long ago, so that nobody waits for more.
OLD = datetime(2020, 1, 1, tzinfo=timezone.utc)


class FakeStore:
    def __init__(self, objects: dict[str, bytes]) -> None:
        self.contents = objects
        self.changed = OLD
        self.reads: list[str] = []
        self.listings = 0
        #: Called before each answer.
        self.meanwhile: Callable[[], None] = lambda: None
        self.is_down = False

    async def list_objects(self, folder: str = "") -> list[StoredObject]:
        self.listings += 1
        self.meanwhile()
        if self.is_down:
            raise InternalError("it is down")
        start = f"{folder}/" if folder else ""
        return [
            StoredObject(name[len(start) :], len(data), _tag(data), self.changed)
            for name, data in sorted(self.contents.items())
            if name.startswith(start)
        ]

    async def read_range(self, path: str, start: int, end: int) -> tuple[memoryview, str]:
        self.reads.append(path)
        self.meanwhile()
        data = self.contents[path]
        return memoryview(data)[start:end], _tag(data)


def _tag(data: bytes) -> str:
    return str(hash(data))
