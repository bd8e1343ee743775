"""Requests of which only the broker knows that they have begun, in memory that outlives it.

Stubs know of what they execute, and forget what they have answered once the answer must have left
the broker. Two things they cannot know: to which run of an ensemble a step belongs, and that an
answer is kept back in the broker for the sake of its order. So the broker writes such requests
here: a run before its first step is sent, an answer while it is kept, both until the answer has
left. The next broker reads what it finds, and executes none of that again: of a run of which one
step was sent, and not answered, the stubs know whether it has begun. The supervisor keeps the
memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from zmqtriton_floor.execution_progress import RequestKey

#: Of a broker that nobody follows.
_OWN_BYTES = 1 << 16

#: How many requests have found no room.
_UNNAMED = struct.Struct("=Q")
#: Who asks, and the id of the request; of nobody if the place is free. Then the id of the step that
#: may not have begun; 0 if the request has.
_ENTRY = struct.Struct("=QQQ")
_STEP = struct.Struct("=Q")
_STEP_AT = 16
#: Of a request that found no room.
_NOWHERE = 0


class _BegunRun(NamedTuple):
    """A run of this broker's own of which a step was sent."""

    place: int
    #: 0 once more than the first step was sent, or anything answered.
    first_step: int


class BegunRequests:
    """One broker's view of the memory: what it found there, and what it has written itself."""

    def __init__(self) -> None:
        """Begin with memory of its own, in which nothing is written."""
        #: By the requests of clients and models; those of a run's own members are a part of it.
        self._runs: dict[RequestKey, _BegunRun] = {}
        self.adopt(bytearray(_OWN_BYTES))

    def adopt(self, memory: Any) -> None:
        """Use this memory, in which earlier brokers may have written."""
        self._memory = memory
        self._free: list[int] = []
        #: The places of requests that an earlier broker has written.
        self._earlier: dict[RequestKey, int] = {}
        #: Those of them that have begun if a step has, by the step; and the steps.
        self._in_doubt: dict[int, RequestKey] = {}
        self._steps: dict[RequestKey, int] = {}
        used = len(bytes(memory).rstrip(b"\0"))
        self._unused_at = _ENTRY.size
        while self._unused_at < used:
            peer, own_id, step = _ENTRY.unpack_from(memory, self._unused_at)
            if peer or own_id:
                self._earlier[peer, own_id] = self._unused_at
                if step:
                    self._in_doubt[step], self._steps[peer, own_id] = (peer, own_id), step
            else:
                self._free.append(self._unused_at)
            self._unused_at += _ENTRY.size
        self._unnamed: int = _UNNAMED.unpack_from(memory, 0)[0]
        self._earlier_unnamed = self._unnamed

    def had_begun(self, key: RequestKey) -> bool:
        """True if the request may have begun at the time of an earlier broker, by all it knew."""
        return self._earlier_unnamed > 0 or (key in self._earlier and key not in self._steps)

    def step_in_doubt(self, key: RequestKey) -> int:
        """Return the step that decides whether the request has begun; 0 if none does."""
        return 0 if self._earlier_unnamed else self._steps.get(key, 0)

    def confirm_steps(self, steps: Iterable[int] | None) -> None:
        """Note that these steps of an earlier broker have begun; with None, that any may have."""
        for step in list(self._in_doubt) if steps is None else steps:
            key = self._in_doubt.pop(step, None)
            if key is not None:
                del self._steps[key]
                self.confirm(self._earlier[key])

    def add(self, key: RequestKey, step: int = 0) -> int:
        """Write a request, before its begin can be seen; return its place.

        With a step it has begun if that has.
        """
        if self._free:
            place = self._free.pop()
        elif self._unused_at + _ENTRY.size <= len(self._memory):
            place, self._unused_at = self._unused_at, self._unused_at + _ENTRY.size
        else:
            self._count_unnamed(1)
            return _NOWHERE
        _ENTRY.pack_into(self._memory, place, *key, step)
        return place

    def confirm(self, place: int) -> None:
        """Note that the request has begun, whatever becomes of the step that it was added with."""
        if place != _NOWHERE:
            _STEP.pack_into(self._memory, place + _STEP_AT, 0)

    def begin_step(self, run: RequestKey, step: int) -> None:
        """Write down that a step of a run is about to be sent."""
        begun = self._runs.get(run)
        if begun is None:
            self._runs[run] = _BegunRun(self.add(run, step), step)
        elif begun.first_step != step:
            self.note_answer(run)

    def note_answer(self, run: RequestKey) -> None:
        """Write down, if it is not, that some step of a run has begun for certain."""
        begun = self._runs.get(run)
        if begun is not None and begun.first_step:
            self._runs[run] = _BegunRun(begun.place, 0)
            self.confirm(begun.place)

    def end_run(self, run: RequestKey) -> int | None:
        """Return the place of a run that is answered; None if nothing was written of it."""
        begun = self._runs.pop(run, None)
        return None if begun is None else begun.place

    def remove(self, place: int) -> None:
        """Forget a request whose answer has left, so that nobody repeats it."""
        if place == _NOWHERE:
            self._count_unnamed(-1)
        else:
            _ENTRY.pack_into(self._memory, place, 0, 0, 0)
            self._free.append(place)

    def forget(self, key: RequestKey) -> None:
        """Forget that an earlier broker has sent a step of it: that has not begun, nor will it."""
        del self._in_doubt[self._steps.pop(key)]
        self.remove(self._earlier.pop(key))

    def forget_earlier(self) -> None:
        """Forget what earlier brokers have written: nobody repeats a request of theirs any more."""
        for place in self._earlier.values():
            self.remove(place)
        for entries in (self._earlier, self._in_doubt, self._steps):
            entries.clear()
        self._count_unnamed(-self._earlier_unnamed)
        self._earlier_unnamed = 0

    def _count_unnamed(self, more: int) -> None:
        self._unnamed += more
        _UNNAMED.pack_into(self._memory, 0, self._unnamed)
