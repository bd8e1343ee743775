"""An account of what one client makes the server hold, and whether it goes on with it."""

from __future__ import annotations

from zmqtriton_frontends.grpc_api.transport.message_framing import TooLargeError, Unfinished
from zmqtriton_frontends.http2.connection import Connection
from zmqtriton_frontends.process.ledger import Ledger, Share
from zmqtriton_frontends.process.progress import Progress

#: Answers up to this size may wait for their client as long as it likes: a stream that is not read
#: stops its model.
FREE_BYTES = 1 << 20
#: What an open stream takes, whether anything comes on it or not.
_STREAM_BYTES = 8 << 10


class Account:
    def __init__(self, ledger: Ledger, most_message: int) -> None:
        self.requests = Unfinished(Share(ledger.requests), most_message)
        #: For what waits for the client to read it.
        self.answers = Share(ledger.answers)
        #: For the streams that are open, if they are many.
        self.streams = Share(ledger.requests)
        self._progress = Progress()

    def admits_stream(self, count: int) -> bool:
        """True if there is memory for one stream more than so many."""
        self.note_streams(count)
        return self.streams.take(_STREAM_BYTES)

    def note_streams(self, count: int) -> None:
        """Note how many streams are open."""
        if self.streams.held:  # none is booked while there are few
            self.streams.hold(count * _STREAM_BYTES)

    def check_answer(self, size: int) -> None:
        """Check an answer of more than FREE_BYTES.

        Raises TooLargeError if there is no memory for it until it is read.
        """
        if not self.answers.has_room(size):
            raise TooLargeError("Too many answers of this server wait for clients to read them")

    def owes(self, http2: Connection) -> str:
        """Return what the client has to go on with; "" if nothing waits for it."""
        if http2.reading.is_amid_frame:
            return "a frame"
        if any(
            stream.is_amid_message and not stream.is_holding for stream in http2.streams.values()
        ):
            return f"a message after {self.requests.ended}"
        return "reading" if http2.waiting_bytes > FREE_BYTES else ""

    def is_stalled(self, now: float, http2: Connection, received: int, sent: int) -> bool:
        """Return whether the client goes on too slowly."""
        owed = self.owes(http2)
        is_reading = owed == "reading"
        held = self.answers.held if is_reading else self.requests.share.held
        return self._progress.is_stalled(now, owed, sent if is_reading else received, held)
