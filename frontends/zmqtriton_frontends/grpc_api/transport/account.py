"""An account of what one client makes the server hold, and whether it goes on with it."""

from __future__ import annotations

from collections.abc import Callable

from zmqtriton_frontends.grpc_api.call import NoRoomError
from zmqtriton_frontends.grpc_api.transport.message_framing import Unfinished
from zmqtriton_frontends.http2.connection import Connection
from zmqtriton_frontends.process.ledger import Client, Ledger, Share
from zmqtriton_frontends.process.progress import Progress

#: Room for streams is taken in steps of so much, which cover a plain request.
_STEP_BYTES = 16 << 10


class Account:
    def __init__(
        self,
        ledger: Ledger,
        most_message: int,
        address: str = "",
        moved: Callable[[], int] | None = None,
        owes: Callable[[], bool] | None = None,
        end: Callable[[], None] | None = None,
    ) -> None:
        """Set up; the functions are those of a Client."""
        self.ledger = ledger
        self.client = client = Client(ledger, address, moved, owes, end)
        self.requests = Unfinished(Share(ledger.requests, client), most_message)
        #: For what waits for the client to read it.
        self.answers = Share(ledger.answers, client)
        #: For the streams that are open, and what waits in them to be taken.
        self.streams = Share(ledger.streams, client)
        self._progress = Progress()

    def admits_streams(self, size: int) -> bool:
        """Return whether there is memory for streams that take so much together."""
        more = -(-size // _STEP_BYTES) * _STEP_BYTES - self.streams.held
        return more <= 0 or self.streams.take(more)

    def note_streams(self, size: int) -> None:
        """Note what open streams take, whatever room there is."""
        self.streams.hold(-(-size // _STEP_BYTES) * _STEP_BYTES)

    def check_answer(self, size: int) -> None:
        """Check an answer that may have to wait.

        Raises NoRoomError if there is no memory for it until it is read.
        """
        if not self.answers.has_room(size):
            raise NoRoomError

    def owes(self, http2: Connection) -> str:
        """Return what the client has to go on with; "" if nothing waits for it."""
        if http2.reading.is_amid_frame:
            return "a frame"
        if any(
            stream.is_amid_message and not stream.is_holding for stream in http2.streams.values()
        ):
            return f"a message after {self.requests.ended}"
        return "reading" if self.answers.held else ""

    def is_stalled(self, now: float, http2: Connection, received: int, sent: int) -> bool:
        """Return whether the client goes on too slowly."""
        owed = self.owes(http2)
        if owed == "reading":  # of a stream, whose messages may be small, and seldom
            return self._progress.is_stalled(now, owed, sent, self.answers.held, least=1)
        return self._progress.is_stalled(now, owed, received, self.requests.share.held)

    def close(self) -> None:
        """Forget the client: it has gone."""
        self.answers.release()
        self.streams.release()
        self.client.leave()
