"""Calls to other models, from the request to the final reply.

bls_client.py sends the calls, and watch.py knows the threads that wait for replies.
"""

from __future__ import annotations

import queue
import time
from typing import Any, Callable, Iterator, Sequence, Tuple

from zmqtriton_floor import wire
from zmqtriton_floor.arena import block_of
from zmqtriton_floor.errors import ProtocolError, ZmqTritonError
from zmqtriton_stub.broker.between_threads import Bell

#: A row of Replies and its body.
ReplyWithBody = Tuple[wire.Reply, bytes]
#: Called with a call that has got a reply.
Notify = Callable[[Any], None]


class BlsCall:
    """One request that this model has made, until its final reply."""

    __slots__ = (
        "bell",
        "blocks",
        "body",
        "granted",
        "granted_s",
        "held",
        "inbox",
        "is_answered",
        "is_cancelled",
        "is_dropped",
        "is_sent",
        "notify",
        "received",
        "row",
        "taken",
    )

    def __init__(
        self,
        row: wire.Request,
        body: bytes,
        blocks: list[wire.Block] | None = None,
        notify: Notify | None = None,
        held: Sequence[Any] = (),
    ) -> None:
        self.row = row
        self.body = body
        #: The blocks of the inputs, which belong to the other model until the final reply.
        self.blocks = blocks or []
        #: Keeps leases of others' memory until then.
        self.held = held
        #: Replies in order; None tells a waiting thread to read for all.
        self.inbox: queue.SimpleQueue[ReplyWithBody | None] = queue.SimpleQueue()
        #: Wakes the thread that polls for this call.
        self.bell: Bell | None = None
        #: Called after each reply, by the thread that took it.
        self.notify = notify
        self.is_sent = False
        self.is_answered = False
        self.is_cancelled = False
        #: True if no code of the model will take the replies.
        self.is_dropped = False
        #: Number of replies that have come, and number of those that the model has taken.
        self.received = 0
        self.taken = 0
        #: Number of taken replies that was last sent to the other model, and the time of that.
        self.granted = 0
        self.granted_s = time.monotonic()

    def answer(self, row: wire.Reply, body: bytes) -> None:
        self.inbox.put((row, body))
        bell = self.bell
        if bell is not None:
            bell.ring()
        if self.notify is not None:
            self.notify(self)

    def arrived(self) -> Iterator[ReplyWithBody]:
        """Take the replies that have arrived."""
        while not self.inbox.empty():
            answered = self.inbox.get()
            if answered is not None:
                yield answered

    def give_up(self, error: ZmqTritonError) -> None:
        """End the call for the model with an error, before the final reply has come."""
        self.is_dropped = self.is_cancelled = True
        self.refuse(error)

    def refuse(self, error: ZmqTritonError) -> None:
        """End the call with an error from here as its final reply."""
        self.is_answered = True
        self.answer(wire.Reply(self.row.id, error.number, error.text, wire.FINAL), b"")


def blocks_of(body: bytes) -> list[wire.Block]:
    """Return the blocks that a response refers to."""
    try:
        outputs = wire.decode_response(body).outputs if body else []
    except ProtocolError:
        return []
    return [block_of(row.data) for row in outputs if type(row.data) is wire.Reference]
