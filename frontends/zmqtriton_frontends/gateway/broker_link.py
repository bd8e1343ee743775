"""A frontend's link to the broker, on its asyncio loop: one connection for each epoch.

All messages of one turn of the loop leave together, as much as the kernel takes at once and the
rest when it has room. Without a broker messages wait; requests that a dead broker has left
unanswered are sent to the next one. Their ids stay the same, so that stubs can say which of them
they know. Never blocks.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Any

from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.zmtp import PIECE, Dealer
from zmqtriton_frontends.tensors.references import Releases

_log = logging.getLogger(__name__)

#: Seconds that messages are passed on before other work has its turn: an answer may be copied.
_TURN_S = 0.005
#: The pause before a connection that ended before the broker's welcome is made again.
_RECONNECT_AFTER_S = 0.1

#: Does the rest of what a message asks for, step by step.
Steps = Iterator[None]
#: Rows in one message: with the longest names that they may hold, its header is not too large.
_ROWS = 100


#: Requests without a final reply that a broker may know, with their bodies, by id.
Unanswered = dict[int, tuple[wire.Request, bytes]]


def resend_messages(
    unanswered: Unanswered, is_cancelled: Callable[[int], bool]
) -> Iterator[tuple[wire.Infer | wire.Cancel, list[bytes]]]:
    """Return the messages about unanswered requests to the next broker, each with its bodies."""
    requests = list(unanswered.values())
    for i in range(0, len(requests), _ROWS):
        some = requests[i : i + _ROWS]
        rows = [row._replace(flags=row.flags | wire.RESENT) for row, _ in some]
        yield wire.Infer(rows), [body for _, body in some]
    cancelled = sorted(filter(is_cancelled, unanswered))
    for i in range(0, len(cancelled), wire.MAX_ROWS):
        yield wire.Cancel(cancelled[i : i + wire.MAX_ROWS]), []


class BrokerLink:
    """Sends messages to the present broker, and passes on the messages that it receives."""

    def __init__(
        self,
        on_message: Callable[[list[bytes]], Steps | None],
        introduce: Callable[[int], tuple[Iterable[Any], Iterable[Any]]],
        is_cancelled: Callable[[int], bool] = lambda own_id: False,
    ) -> None:
        """Set up; `on_message` gets frames, and may leave a part of a message to steps.

        `introduce` returns the messages to the broker of an epoch: messages before, and messages
        after, the requests that an earlier broker left unanswered. `is_cancelled` returns which of
        those requests to cancel.
        """
        self._on_message = on_message
        self._introduce = introduce
        self._is_cancelled = is_cancelled
        self._loop: asyncio.AbstractEventLoop
        self._directory: str
        #: Releases of blocks, sent along with other messages; None before the first broker.
        self._releases: Releases | None = None
        #: Epoch of the broker to connect to, 0 while there is none; and of the last one that has
        #: welcomed this process, as the owner records it.
        self._epoch = self.welcome_epoch = 0
        #: Connection to the broker; None while there is none.
        self._dealer: Dealer | None = None
        self._is_writing = False
        self._requests: list[wire.Request] = []
        #: Bodies of `_requests`, in the same order.
        self._bodies: list[bytes] = []
        self._cancels: list[int] = []
        self._grants: list[wire.StreamAck] = []
        #: Requests without a final reply, which the next broker gets again.
        self.unanswered: Unanswered = {}
        self._is_flush_due = False
        #: Rest of the last message, which is taken before the dealer's other messages.
        self._steps: Steps | None = None
        #: The rest is read in the next turn.
        self._is_read_due = False

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    # ---------------------------------------------------------------- sending

    def request(self, row: wire.Request, body: bytes) -> None:
        self._requests.append(row)
        self._bodies.append(body)
        if not self._is_flush_due:  # as _flush_soon() does, which would be one call more
            self._is_flush_due = True
            self._loop.call_soon(self.flush)

    def cancel(self, own_id: int) -> None:
        self._cancels.append(own_id)
        self._flush_soon()

    def grant(self, grant: wire.StreamAck) -> None:
        """Let a stub send more responses of a stream."""
        self._grants.append(grant)
        self._flush_soon()

    def send(self, message: Any) -> None:
        """Send at once; the message is dropped while there is no broker."""
        if self._dealer is not None:
            self._dealer.put([wire.encode(message)])
            self._write(self._dealer)

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send the messages of this turn; without a broker they wait."""
        dealer = self._dealer
        if dealer is None:
            return
        self._is_flush_due = False
        requests, self._requests = self._requests, []
        bodies, self._bodies = self._bodies, []
        for row, body in zip(requests, bodies, strict=True):
            self.unanswered[row.id] = row, body
        # before the requests: a stub that executes one may need the room
        released: list[wire.Block] = []
        if self._releases is not None and self._releases.blocks:
            *others, released = self._releases.take()
            if not requests:
                others.append(released)
            for blocks in others:
                dealer.put([wire.encode(wire.Release(blocks))])
        for i in range(0, len(requests), wire.MAX_ROWS):
            end = i + wire.MAX_ROWS
            header = wire.encode_rows(wire.Infer, requests[i:end], released)
            dealer.put([header, *bodies[i:end]])
            released = []
        if self._cancels or self._grants:
            self._put_rarer(dealer)
        dealer.flush()  # as _write() does, which would be one call more
        if dealer.is_blocked:
            self._write(dealer)

    def _put_rarer(self, dealer: Dealer) -> None:
        """Queue messages about requests that were sent before, or just now."""
        cancels, self._cancels = self._cancels, []
        grants, self._grants = self._grants, []
        rarer: tuple[tuple[Any, list[Any]], ...] = (wire.Cancel, cancels), (wire.StreamAcks, grants)
        for kind, rows in rarer:
            for i in range(0, len(rows), wire.MAX_ROWS):
                dealer.put([wire.encode(kind(rows[i : i + wire.MAX_ROWS]))])

    def _write(self, dealer: Dealer) -> None:
        """Send queued messages as far as there is room; the rest when there is more."""
        dealer.flush()
        if dealer.is_blocked != self._is_writing:
            self._is_writing = dealer.is_blocked
            if dealer.is_blocked:
                self._loop.add_writer(dealer.fileno(), self._write, dealer)
            else:
                self._loop.remove_writer(dealer.fileno())

    # ---------------------------------------------------------------- reading

    def _read(self, until: float = 0.0) -> None:
        """Pass on received messages, as many as the time allows; the others in the next turn."""
        dealer, until = self._dealer, until or monotonic() + _TURN_S
        if dealer is None:
            return
        messages, size = dealer.messages, 0
        while self._steps is not None or messages or (size := dealer.read()):
            while self._steps is not None or messages:
                if self._steps is None:
                    self._steps = self._on_message(messages.popleft())
                elif next(self._steps, self) is self:
                    self._steps = None
                if (messages or self._steps is not None) and monotonic() > until:
                    if not self._is_read_due:
                        self._is_read_due = True
                        self._loop.call_soon(self._read_on)
                    return
            if size < PIECE and until < math.inf:  # else more may have come since that read
                break
        if not dealer.is_open and dealer is self._dealer:
            self._end(dealer)

    def _read_on(self) -> None:
        self._is_read_due = False
        self._read()

    # -------------------------------------------------------------- connecting

    def connect(self, epoch: int, directory: str, releases: Releases) -> None:
        """Connect to the first broker, whose sockets are in that directory."""
        self._directory, self._releases = directory, releases
        self.change(epoch)

    def change(self, epoch: int) -> None:
        """Leave the dead broker for the next one; epoch 0: there is no other broker yet."""
        self._read(math.inf)  # what has come is valid
        self._disconnect()
        self._epoch = epoch
        if epoch:  # not now: who got a response in this turn opens it first, so that it is known
            self._loop.call_soon(self._connect, epoch)

    def _connect(self, epoch: int) -> None:
        if epoch != self._epoch or epoch == self.welcome_epoch:
            return
        try:
            dealer = Dealer(endpoints.requests_address(self._directory, epoch))
        except OSError as error:
            _log.warning("cannot connect to the broker now: %s", error)
            self._connect_later()
            return
        self._dealer = dealer
        self._loop.add_reader(dealer.fileno(), self._read)
        first, last = self._introduce(epoch)
        for message in first:
            dealer.put([wire.encode(message)])
        for message, bodies in resend_messages(self.unanswered, self._is_cancelled):
            dealer.put([wire.encode(message), *bodies])
        for message in last:
            dealer.put([wire.encode(message)])
        self.flush()

    def _connect_later(self) -> None:
        self._loop.call_later(_RECONNECT_AFTER_S, self._connect, self._epoch)

    def _end(self, dealer: Dealer) -> None:
        """Connect again, unless the broker has welcomed this process.

        A broker that has welcomed it notices the end of the connection itself, or is dead; the
        supervisor reports both.
        """
        self._unwatch(dealer)
        if self._epoch != self.welcome_epoch:
            self._disconnect()
            self._connect_later()

    def _unwatch(self, dealer: Dealer) -> None:
        self._loop.remove_reader(dealer.fileno())
        self._loop.remove_writer(dealer.fileno())
        self._is_writing = False

    def close(self) -> None:
        self._epoch = self.welcome_epoch = 0
        self._disconnect()

    def _disconnect(self) -> None:
        dealer, self._dealer, self._steps = self._dealer, None, None
        if dealer is not None:
            self._unwatch(dealer)
            dealer.close()
