"""The memory that one client makes the server use, and whether the client makes progress.

Also counts calls that have ended, by the status that their clients get.
"""

from __future__ import annotations

from typing import Any

from zmqtriton_frontends.grpc_api.transport.message_framing import Unfinished
from zmqtriton_frontends.http2.connection import Http2Connection
from zmqtriton_frontends.inference.connected_client import ConnectedClient
from zmqtriton_frontends.process import client_progress
from zmqtriton_frontends.process.ledger import Share

#: Bytes that a client may leave unread before it is no longer read from.
HIGH_WATER = 1 << 18
#: Bytes of room for streams that are taken in one step, which covers a plain request.
_STEP_BYTES = 16 << 10
#: The names of gRPC's statuses, each at its number.
NAMES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
OK, CANCELLED = NAMES.index("OK"), NAMES.index("CANCELLED")

#: Number of ended calls by status. A list: the code that ends a call adds to it in place, which is
#: no call of a function.
by_status = [0] * len(NAMES)


def counts() -> dict[str, int]:
    return {name: count for name, count in zip(NAMES, by_status, strict=True) if count}


class Account:
    def __init__(self, client: ConnectedClient, max_message: int) -> None:
        self.client, ledger = client, client.ledger
        self.requests = Unfinished(Share(ledger.requests, client), max_message)
        #: Share for bytes that wait for the client to read them.
        self.answers = Share(ledger.answers, client)
        #: Share for open streams, and for messages that wait in them to be taken.
        self.streams = Share(ledger.streams, client)
        #: Share for header blocks that are kept, so that they are not read each time they come.
        self.headers = Share(ledger.streams, client)
        #: Number of a stream, and the time since when the streams up to it have been open.
        self._silent_before = 0, 0.0

    def admits_streams(self, http2: Http2Connection, size: int) -> bool:
        """Return whether there is room for open streams of `size` bytes together."""
        more = -(-size // _STEP_BYTES) * _STEP_BYTES - self.streams.held
        is_admitted = more <= 0 or self.streams.take(more)
        http2.room_bytes = self.streams.held
        return is_admitted

    def note_streams(self, http2: Http2Connection) -> None:
        """Count the memory of streams, and of the beginning of a frame, even without room."""
        size = http2.kept_bytes + http2.reading.held_bytes
        self.streams.hold(-(-size // _STEP_BYTES) * _STEP_BYTES)
        http2.room_bytes = self.streams.held

    def expire_silent(self, now: float, http2: Http2Connection) -> None:
        """End calls that were opened long ago and whose client has sent nothing since."""
        oldest, since = self._silent_before
        if now - since > client_progress.STALL_S:
            for stream in [s for s in http2.streams.values() if s.id <= oldest and s.is_silent]:
                stream.expire()
            self._silent_before = next(reversed(http2.streams), 0), now

    def book(self, http2: Http2Connection, transport: Any) -> None:
        """Count the client's unread bytes and the memory of streams; pause if much is unread."""
        if http2.is_over:
            return
        unread: int = transport.get_write_buffer_size()
        if unread > HIGH_WATER and not http2.is_paused:
            http2.is_paused = True
            # otherwise what it asks would be answered into memory
            transport.pause_reading()
        self.answers.hold(http2.waiting_bytes + unread)
        if http2.kept_bytes > self.streams.held:
            self.note_streams(http2)

    def owes(self, http2: Http2Connection) -> str:
        """Return a name of what the client must send or read next; "" if nothing is due."""
        if http2.reading.is_amid_frame:
            return "a frame"
        if any(
            stream.is_amid_message and not stream.is_holding for stream in http2.streams.values()
        ):
            return f"a message after {self.requests.ended}"
        return "reading" if self.answers.held else ""

    def waits_for(self, http2: Http2Connection) -> bool:
        """Return whether the server waits for the client."""
        return bool(self.owes(http2)) or all(s.is_silent for s in http2.streams.values())

    def is_stalled(self, now: float, http2: Http2Connection, received: int, sent: int) -> bool:
        """Return whether the client is too slow with its next step."""
        owed = self.owes(http2)
        if owed == "reading":
            return self.client.progress.is_paused_too_long(now, sent, self.answers.held)
        return self.client.progress.is_stalled(now, owed, received, self.requests.share.held)

    def close(self) -> None:
        """Forget the client, which has left."""
        self.answers.release()
        self.streams.release()
        self.headers.release()
        self.client.leave()
