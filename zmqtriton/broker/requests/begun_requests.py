"""The record of begun requests that only the broker knows, in memory that outlives it.

Stubs know the requests that they execute, and forget answered ones once the answer must have left
the broker. Stubs cannot know two things: which run of an ensemble a step belongs to, and that an
answer is kept back in the broker because of its order. So the broker writes such requests here: a
run before its first step is sent, an answer while it is kept, both until the answer has left. The
next broker reads this record, and executes none of these requests again. One kind is in doubt: if a
single step of a run was sent and not answered, the stubs know whether the run has begun. The
supervisor keeps the memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from zmqtriton_floor.execution_progress import RequestKey

#: Size in bytes of the record of a broker that has no successor to read it.
_OWN_BYTES = 1 << 16

#: Header of the record: the number of requests that found no room.
_UNNAMED = struct.Struct("=Q")
#: Entry of a request: the serial of the peer that made it, and its id there; zeros if the entry is
#: free. Then the id of the step that may not have begun; 0 if the request has.
_ENTRY = struct.Struct("=QQQ")
_STEP = struct.Struct("=Q")
_STEP_AT = 16
#: Place of a request that found no room. The header is there, and never an entry.
_NOWHERE = 0


class _BegunRun(NamedTuple):
    """A run that this broker has begun: at least one of its steps was sent."""

    place: int
    #: Id of the run's first step; 0 once a second one was sent, or any step was answered.
    first_step: int


class BegunRequests:
    """One broker's view of the memory: entries that it found there, and entries of its own."""

    def __init__(self) -> None:
        """Begin with an empty record in memory of this process."""
        #: Runs by the requests of clients and models. A run that is a step of another run is a part
        #: of that.
        self._runs: dict[RequestKey, _BegunRun] = {}
        self.adopt(bytearray(_OWN_BYTES))

    def adopt(self, memory: Any) -> None:
        """Read the record of earlier brokers in this memory, and write there from now on."""
        self._memory = memory
        self._free: list[int] = []
        #: The places of requests that an earlier broker has written.
        self._earlier: dict[RequestKey, int] = {}
        #: Earlier requests that have begun only if a step has, by the id of this step; and the ids
        #: of the steps by request.
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
        """True if the request may have begun at the time of an earlier broker, by its record."""
        return self._earlier_unnamed > 0 or (key in self._earlier and key not in self._steps)

    def step_in_doubt(self, key: RequestKey) -> int:
        """Return the step that decides whether the request has begun; 0 if no step does."""
        return 0 if self._earlier_unnamed else self._steps.get(key, 0)

    def confirm_steps(self, steps: Iterable[int] | None) -> None:
        """Confirm steps of an earlier broker as begun; None: any of them may have begun."""
        for step in list(self._in_doubt) if steps is None else steps:
            key = self._in_doubt.pop(step, None)
            if key is not None:
                del self._steps[key]
                self.confirm(self._earlier[key])

    def add(self, key: RequestKey, step: int = 0) -> int:
        """Add a request before its begin can be seen; return its place.

        With a step, the request counts as begun only if the step has begun.
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
        """Record a request as begun for certain, even if its step is lost."""
        if place != _NOWHERE:
            _STEP.pack_into(self._memory, place + _STEP_AT, 0)

    def begin_step(self, run: RequestKey, step: int) -> None:
        """Add the step of a run that is about to be sent."""
        begun = self._runs.get(run)
        if begun is None:
            self._runs[run] = _BegunRun(self.add(run, step), step)
        elif begun.first_step != step:
            self.note_answer(run)

    def note_answer(self, run: RequestKey) -> None:
        """Record, if not yet done, that some step of a run has begun for certain."""
        begun = self._runs.get(run)
        if begun is not None and begun.first_step:
            self._runs[run] = _BegunRun(begun.place, 0)
            self.confirm(begun.place)

    def end_run(self, run: RequestKey) -> int | None:
        """Return the place of an answered run; None if the record does not have it."""
        begun = self._runs.pop(run, None)
        return None if begun is None else begun.place

    def remove(self, place: int) -> None:
        """Erase a request whose answer has left: its caller will not repeat it."""
        if place == _NOWHERE:
            self._count_unnamed(-1)
        else:
            _ENTRY.pack_into(self._memory, place, 0, 0, 0)
            self._free.append(place)

    def forget(self, key: RequestKey) -> None:
        """Erase a run of an earlier broker: its only sent step has not begun, and never will."""
        del self._in_doubt[self._steps.pop(key)]
        self.remove(self._earlier.pop(key))

    def forget_earlier(self) -> None:
        """Erase the requests of earlier brokers, once no process can repeat them any more."""
        for place in self._earlier.values():
            self.remove(place)
        for entries in (self._earlier, self._in_doubt, self._steps):
            entries.clear()
        self._count_unnamed(-self._earlier_unnamed)
        self._earlier_unnamed = 0

    def _count_unnamed(self, more: int) -> None:
        self._unnamed += more
        _UNNAMED.pack_into(self._memory, 0, self._unnamed)
