"""Final answers that may be lost with a broker: the next one gets them, instead of new runs.

They are kept until the broker has proved, by sending work, that it lived for a second after the
answer and that no answers wait in it for a reader. Of large bodies, and beyond a total size, only
the fact is kept. Methods are called with the lock of responses.py held.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Iterable, List

from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable

#: After this time the broker has passed it on to the kernel, where its receiver finds it even if
#: the broker is dead by then, or has said that a receiver leaves so much unread that it cannot.
SETTLED_NS = 1_000_000_000
#: Messages of the broker are looked at in this interval: answers may be kept for so much longer.
_LOOK_EVERY_NS = SETTLED_NS // 10
MAX_BODY_BYTES = 64 << 10
MAX_BYTES = 4 << 20
#: The limit for the error texts in one hello.
_MAX_TEXTS = wire.MAX_HEADER_BYTES // 4
_CLIPPED = 64

_LOST = "the answer of the model was lost with the broker"
_now_ns = time.monotonic_ns


#: An outcome, when it was sent, and its body; None in place of one that is not kept.
_Kept = List[Any]


class UnconfirmedAnswers:
    """The unconfirmed answers, oldest first."""

    def __init__(self) -> None:
        self.kept: deque[_Kept] = deque()
        #: Answers that have bodies, which are not empty, and the bytes of these.
        self._with_bodies: deque[_Kept] = deque()
        self._bytes = 0
        #: There is nothing to forget before.
        self.look_at_ns = 0

    def keys(self) -> list[tuple[int, int]]:
        """Return the requests with unconfirmed answers."""
        # a copy: meanwhile a destructor may add one
        return [(outcome.peer, outcome.id) for outcome, _, _ in list(self.kept)]

    def add(self, outcome: wire.Outcome, body: bytes, *, is_lasting: bool = True) -> None:
        """Add an answer that is being sent, or about to be.

        Of an answer that is not `is_lasting` the blocks may be gone later.
        """
        size = len(body)
        kept = [outcome, _now_ns(), body if is_lasting and size <= MAX_BODY_BYTES else None]
        self.kept.append(kept)
        if kept[2]:
            self._with_bodies.append(kept)
            self._bytes += size
            while self._bytes > MAX_BYTES:
                self._forget_body(self._with_bodies.popleft())

    def _forget_body(self, kept: _Kept) -> None:
        self._bytes -= len(kept[2] or b"")
        kept[2] = None

    def note_message(self, since_ns: int) -> None:
        """Forget settled answers: the broker has sent a message after this time."""
        settled_ns = since_ns - SETTLED_NS
        self.look_at_ns = since_ns + _LOOK_EVERY_NS
        kept, with_bodies = self.kept, self._with_bodies
        while kept and kept[0][1] < settled_ns:
            self._forget_body(kept.popleft())
        while with_bodies and not with_bodies[0][2]:
            with_bodies.popleft()

    def recall(self) -> tuple[list[wire.Outcome], list[bytes]]:
        """Return all answers for the next broker, with texts that fit into a header.

        They are kept until that broker has settled them, because it may die as well.
        """
        now_ns, every = _now_ns(), list(self.kept)  # a destructor may add one meanwhile
        for kept in every:
            kept[1] = now_ns
        outcomes = [
            outcome
            if body is not None
            else outcome._replace(code=Unavailable.number, text=_LOST, blocks=[])
            for outcome, _, body in every
        ]
        return _clip(outcomes), [body or b"" for _, _, body in every]


def _clip(outcomes: Iterable[wire.Outcome]) -> list[wire.Outcome]:
    """Return the outcomes, with texts cut where one header cannot take all of them."""
    clipped, room = [], _MAX_TEXTS
    for outcome in outcomes:
        size = len(outcome.text.encode())
        if size > room:
            outcome = outcome._replace(text=outcome.text[:_CLIPPED])
        else:
            room -= size
        clipped.append(outcome)
    return clipped
