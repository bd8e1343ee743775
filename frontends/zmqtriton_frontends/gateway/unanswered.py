"""Requests to the broker without a final answer, which are repeated to the next one.

The ids stay the same, so that stubs can say which of them they know. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator

from zmqtriton_floor import wire

#: Rows in one message: with the longest names that they may hold, its header is not too large.
_ROWS = 100


class Unanswered:
    def __init__(self) -> None:
        self._requests: dict[int, tuple[wire.Request, bytes]] = {}
        self._cancelled: set[int] = set()

    def __len__(self) -> int:
        return len(self._requests)

    def sent(self, rows: list[wire.Request], bodies: list[bytes]) -> None:
        """Note that a broker may know of these from now on."""
        for row, body in zip(rows, bodies, strict=True):
            self._requests[row.id] = (row, body)

    def cancelled(self, own_id: int) -> None:
        """Note that nobody waits for it any more.

        It will still be answered, and may yet be sent.
        """
        self._cancelled.add(own_id)

    def answered(self, own_id: int) -> None:
        self._requests.pop(own_id, None)
        self._cancelled.discard(own_id)

    def again(self) -> Iterator[tuple[wire.Infer | wire.Cancel, list[bytes]]]:
        """Return the messages to the next broker, each with its bodies."""
        requests = list(self._requests.values())
        for i in range(0, len(requests), _ROWS):
            some = requests[i : i + _ROWS]
            rows = [row._replace(flags=row.flags | wire.RESENT) for row, _ in some]
            yield wire.Infer(rows), [body for _, body in some]
        cancelled = sorted(self._cancelled & self._requests.keys())
        for i in range(0, len(cancelled), wire.MAX_ROWS):
            yield wire.Cancel(cancelled[i : i + wire.MAX_ROWS]), []
