"""Judges requests of a day with faults: which may have failed, and what an answer may say.

Knows no server: what was done to it, and what its models wrote down, is passed in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

#: Of a harm that is not over.
STILL = 1 << 62


class Failure(NamedTuple):
    """A request that was not answered right. Times are of time.monotonic_ns()."""

    client: str
    model: str
    #: "http", "grpc", or the process of jobs.
    frontend: str
    #: Its id in the journal; "" if its model keeps none.
    own_id: str
    sent_ns: int
    ended_ns: int
    text: str
    #: Its connection ended, or there was none: no answer of the server.
    is_lost: bool


class Harm(NamedTuple):
    """Something that was done to the server and may cost requests."""

    begun_ns: int
    ended_ns: int
    text: str
    #: The roles of the harmed processes.
    roles: frozenset[str]
    #: The stubs that are ended by it, and their model.
    pids: frozenset[int] = frozenset()
    model: str = ""
    #: How many instances each of them has at most: several where they are threads.
    instances: int = 1

    def overlaps(self, failure: Failure) -> bool:
        return self.begun_ns <= failure.ended_ns and failure.sent_ns <= self.ended_ns


class Cause(Enum):
    """The reason for which a request failed."""

    STUB = "executing on a stub that was ended"
    BROKER = "executing when the broker died"
    FRONTEND = "under way in a frontend that was ended"
    SERVER = "while the whole server was dead"
    MACHINE = "while system calls failed, or nothing could run"
    HANDED = "handed to a stub that was ended before it wrote that down"
    NOT_BEGUN = "HAD NOT BEGUN"
    UNEXPLAINED = "HAD BEGUN, and nothing was done to its process"

    @property
    def is_broken_promise(self) -> bool:
        return self in (Cause.NOT_BEGUN, Cause.UNEXPLAINED)


#: The model that another one asks.
_CALLED = {"twice_journal": "journal", "asking": "journal", "routed.routes": "routed"}

#: Roles of harms that are not done to one process of the server.
MACHINE = "machine"


def find_cause(failure: Failure, begun_in: frozenset[int], harms: Sequence[Harm]) -> Cause:
    """Return why the request failed; begun_in are the processes that have begun it."""
    near = [harm for harm in harms if harm.overlaps(failure)]
    roles = {role for harm in near for role in harm.roles}
    if "supervisor" in roles:
        return Cause.SERVER
    if failure.is_lost and failure.frontend in roles:
        return Cause.FRONTEND
    if _was_on_ended_stub(failure, begun_in, harms):
        return Cause.STUB
    if MACHINE in roles:
        return Cause.MACHINE
    if failure.own_id and not begun_in:
        return Cause.NOT_BEGUN
    return Cause.BROKER if "broker" in roles else Cause.UNEXPLAINED


def _was_on_ended_stub(failure: Failure, begun_in: frozenset[int], harms: Iterable[Harm]) -> bool:
    if failure.own_id:
        return any(begun_in & harm.pids for harm in harms)
    # The model keeps no journal: it may have been there.
    return any(h.pids and h.model == failure.model and h.overlaps(failure) for h in harms)


def excuse_handed(
    failures: Iterable[tuple[Cause, Failure]], harms: Sequence[Harm]
) -> list[tuple[Cause, Failure]]:
    """Excuse one request for each instance that was ended, if it came just then.

    An instance begins a request before its model can write that down; that the server knows which
    one it had begun is shown by other tests.
    """
    judged = []
    ended = {(p, n): harm for harm in harms for p in harm.pids for n in range(harm.instances)}
    for cause, failure in failures:
        # who asks another model has begun, and what it asks has not
        is_calling = cause is Cause.UNEXPLAINED and failure.model in _CALLED
        if cause is Cause.NOT_BEGUN or is_calling:
            models = {failure.model, _CALLED.get(failure.model, "")}
            near = [i for i, h in ended.items() if h.model in models and h.overlaps(failure)]
            if near:
                del ended[near[0]]
                cause = Cause.HANDED
        judged.append((cause, failure))
    return judged


class Timeline(Generic[T]):
    """The values that an answer may have, over time. Several threads may read it."""

    def __init__(self, value: T, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._entries: list[tuple[int, frozenset[T]]] = [(0, frozenset({value}))]

    @property
    def newest(self) -> frozenset[T]:
        return self._entries[-1][1]

    def widen(self, value: T) -> None:
        """Allow another value from now on; to be called before it can be seen."""
        with self._lock:
            self._entries.append((self._now_ns(), self.newest | {value}))

    def settle(self, value: T) -> None:
        """Allow nothing else in what is asked from now on."""
        with self._lock:
            self._entries.append((self._now_ns(), frozenset({value})))

    def allowed(self, sent_ns: int, ended_ns: int) -> frozenset[T]:
        """Return what an answer may be to a request of this time."""
        with self._lock:
            allowed: frozenset[T] = frozenset()
            for since_ns, values in reversed(self._entries):
                if since_ns <= ended_ns:
                    allowed |= values
                if since_ns < sent_ns:
                    break
            return allowed
