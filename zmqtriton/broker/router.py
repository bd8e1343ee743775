"""One of the broker's two ROUTERs: the peers behind its connections, and messages of many rows."""

from __future__ import annotations

import select
from typing import Any

from zmqtriton_floor import wire, zmtp


class Router(zmtp.Router):
    """A bound socket and the peers behind its connections."""

    def __init__(self, address: str, epoll: select.epoll) -> None:
        super().__init__(address, epoll)
        self.serials: dict[zmtp.Connection, int] = {}
        self.by_serial: dict[int, zmtp.Connection] = {}
        #: Known peers whose connections have ended by themselves.
        self._lost: list[int] = []
        #: The connections of peers whose deaths are not known. What was sent there may be lost.
        self._broken: set[zmtp.Connection] = set()

    def introduce(self, connection: zmtp.Connection, serial: int) -> None:
        self.know(connection)
        self.serials[connection] = serial
        self.by_serial[serial] = connection

    def close(self, connection: zmtp.Connection) -> None:
        """End a connection; what it has sent is still in the inbox."""
        if connection in self.connections and connection in self.serials:
            self._lost.append(self.serials[connection])
            self._broken.add(connection)
            self.has_duties = True
        super().close(connection)

    def take_lost(self) -> list[int]:
        """Return the known peers whose connections have ended since the last call."""
        lost, self._lost = self._lost, []
        return lost

    def disconnect(self, serial: int) -> None:
        connection = self.by_serial.pop(serial, None)
        if connection is not None:
            del self.serials[connection]
            self._broken.discard(connection)
            self.close(connection)

    def undelivered(self) -> set[zmtp.Connection]:
        """Return the connections to living peers that may not get the messages sent there."""
        return self.blocked | self._broken

    def send(self, serial: int, message: Any, bodies: list[bytes]) -> bool:
        """Send a message; False if its peer is gone, of whose death the supervisor tells."""
        connection = self.by_serial.get(serial)
        return connection is not None and self.write(connection, [wire.encode(message), *bodies])

    def send_list(self, serial: int, kind: Any, rows: list[Any]) -> None:
        """Send messages of this kind, whose only field is a list of rows without bodies."""
        connection = self.by_serial.get(serial)
        if connection is not None:
            for i in range(0, len(rows), wire.MAX_ROWS):
                self.write(connection, [wire.encode_rows(kind, rows[i : i + wire.MAX_ROWS])])

    def send_rows(
        self,
        serial: int,
        kind: Any,
        rows: list[tuple[Any, bytes]],
        *before: list[Any],
        max_rows: int = wire.MAX_ROWS,
    ) -> None:
        """Send messages of this kind that hold these rows and their bodies, so many in each.

        The first one has these lists in its other fields.
        """
        connection = self.by_serial.get(serial)
        if connection is None:
            return
        if len(rows) == 1:
            ((row, body),) = rows
            connection.put((wire.encode_rows(kind, [row], *before), body))
            self.unflushed[connection] = None
            return
        for i in range(0, len(rows), max_rows):
            some = rows[i : i + max_rows]
            others = [[] for _ in before] if i else before
            header = wire.encode_rows(kind, [row for row, _ in some], *others)
            self.write(connection, [header, *(body for _, body in some)])

    def read_all_of(self, serial: int) -> None:
        """Read everything that a peer has sent by now; of a dead one, all that it ever has."""
        connection = self.by_serial.get(serial)
        while connection is not None and self.read(connection):
            pass
