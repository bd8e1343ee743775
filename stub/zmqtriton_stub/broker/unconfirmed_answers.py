"""Final answers that may be lost with the broker: the next one gets them, and runs none again.

They are kept until the broker has proved, by sending work, that it lived for a second after the
answer and that nothing waits in it for a reader. Of large bodies, and beyond a number of bytes in
all, only the fact is kept. Methods are called with the lock of responses.py held.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Iterable

from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable

#: After this time the broker has passed it on to the kernel, where its receiver finds it even if
#: the broker is dead by then, or has said that a receiver leaves so much unread that it cannot.
SETTLED_NS = 1_000_000_000
MAX_BODY_BYTES = 64 << 10
MAX_BYTES = 4 << 20
#: The limit for the error texts in one hello.
_MAX_TEXTS = wire.MAX_HEADER_BYTES // 4
_CLIPPED = 64

_LOST = "the answer of the model was lost with the broker"
_now_ns = time.monotonic_ns


class _Kept:
    __slots__ = ("body", "outcome", "sent_ns")

    def __init__(self, outcome: wire.Outcome, body: bytes | None) -> None:
        self.outcome = outcome
        #: None: it was too large to keep.
        self.body = body
        self.sent_ns = _now_ns()


class UnconfirmedAnswers:
    """Oldest first."""

    def __init__(self) -> None:
        self.kept: deque[_Kept] = deque()
        self._with_body: deque[_Kept] = deque()
        self._bytes = 0

    def keys(self) -> list[tuple[int, int]]:
        """Return the requests that were answered so."""
        # a copy: meanwhile a destructor may add one
        return [(kept.outcome.peer, kept.outcome.id) for kept in list(self.kept)]

    def add(self, outcome: wire.Outcome, body: bytes, *, is_lasting: bool = True) -> None:
        """Add an answer that is on its way, or about to be.

        One that is not lasting may refer to nothing later.
        """
        size = len(body)
        if size > MAX_BODY_BYTES or not is_lasting:
            self.kept.append(_Kept(outcome, None))
            return
        kept = _Kept(outcome, body)
        self.kept.append(kept)
        if size:
            self._with_body.append(kept)
            self._bytes += size
            while self._bytes > MAX_BYTES:
                oldest = self._with_body.popleft()
                self._bytes -= len(oldest.body or b"")
                oldest.body = None

    def note_message(self, since_ns: int) -> None:
        """Forget answers that are settled, as the broker has sent a message after this time."""
        settled_ns = since_ns - SETTLED_NS
        kept = self.kept
        while kept and kept[0].sent_ns < settled_ns:
            oldest = kept.popleft()
            if oldest.body:
                self._with_body.popleft()
                self._bytes -= len(oldest.body)

    def recall(self) -> tuple[list[wire.Outcome], list[bytes]]:
        """Return all answers for the next broker, with as much of their texts as a header can take.

        They are kept until that broker has settled them, as it may die as well.
        """
        now_ns, every = _now_ns(), list(self.kept)  # a destructor may add one meanwhile
        for kept in every:
            kept.sent_ns = now_ns
        return _clip(map(_as_known, every)), [kept.body or b"" for kept in every]


def _as_known(kept: _Kept) -> wire.Outcome:
    if kept.body is not None:
        return kept.outcome
    return kept.outcome._replace(code=Unavailable.number, text=_LOST, blocks=[])


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
