"""The hellos of stubs that have more to tell than one message can hold, put together again."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from zmqtriton_floor.wire import Hello


class Hellos:
    def __init__(self) -> None:
        #: What has come so far, by connections: if one ends, all of it comes again by the next.
        self._begun: WeakKeyDictionary[object, tuple[Hello, list[bytes]]] = WeakKeyDictionary()

    def join(
        self, connection: object, part: Hello, bodies: list[bytes]
    ) -> tuple[Hello, list[bytes]] | None:
        """Return the whole hello, and its bodies; None if another part follows."""
        before = self._begun.pop(connection, None)
        if before is not None:
            told, earlier = before
            part = part._replace(
                received=told.received + part.received,
                unconfirmed=told.unconfirmed + part.unconfirmed,
            )
            bodies = earlier + bodies
        if part.is_continued:
            self._begun[connection] = part, bodies
            return None
        return part, bodies
