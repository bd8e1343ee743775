"""A client that asks again and again until its schedule ends, for a thread of its own."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from contextlib import suppress
from itertools import pairwise

from zmqtriton_addons.tools.benching.connections import Connection, RequestFailed

#: After a failure, so that a server that refuses at once is not flooded.
_PAUSE_S = 0.01


class Schedule:
    """The moments at which requests are due, for all clients of this process."""

    def __init__(self, rate: float, seconds: float, stop: threading.Event) -> None:
        """A rate of 0 is that of a closed loop: the next one is due when one is answered."""
        self._gap_s = 1 / rate if rate else 0.0
        self._seconds = seconds
        self._next_s = self._end_s = -math.inf
        self._lock = threading.Lock()
        self._may_begin = threading.Event()
        self._stop = stop

    def begin(self) -> None:
        """Let all clients begin that wait for it."""
        self._next_s = time.perf_counter()
        self._end_s = self._next_s + self._seconds
        self._may_begin.set()

    def wait_for_begin(self) -> None:
        self._may_begin.wait()

    def next_due_s(self, now_s: float) -> float | None:
        """Wait for the next moment, which may be over if all clients were busy; None at the end."""
        if not self._gap_s:
            return now_s if now_s < self._end_s and not self._stop.is_set() else None
        with self._lock:
            due_s, self._next_s = self._next_s, self._next_s + self._gap_s
        if due_s < self._end_s:
            self._stop.wait(max(0.0, due_s - time.perf_counter()))
        return due_s if due_s < self._end_s and not self._stop.is_set() else None

    def pause(self) -> None:
        """Wait a moment, or until the stop."""
        self._stop.wait(_PAUSE_S)

    def is_stopped(self) -> bool:
        return self._stop.is_set()


class Client:
    """One client, which asks over a connection of its own; its times are in microseconds."""

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        self.connection = connection
        self.latencies: list[int] = []
        #: Of streams: until the first response, and between responses.
        self.first: list[int] = []
        self.between: list[int] = []
        self.failures: Counter[str] = Counter()
        #: It cannot go on.
        self.is_broken = False
        self._timeout_s = timeout_s
        #: When the request under way was sent.
        self._sent_s = math.inf
        self._is_late = False

    def open(self) -> None:
        """Open its connection; if that fails, its first request says so."""
        with suppress(RequestFailed):
            self.connection.open()

    def ask_all(self, schedule: Schedule) -> None:
        """Ask until the schedule ends."""
        # Each request looks up and calls what is here, on a core that the server may need, too.
        ask, next_due_s, clock = self.connection.ask, schedule.next_due_s, time.perf_counter
        append = self.latencies.append
        schedule.wait_for_begin()
        now_s = clock()
        while (due_s := next_due_s(now_s)) is not None:
            self._sent_s = now_s if due_s == now_s else clock()
            try:
                arrivals = ask()
            except RequestFailed as error:
                self._sent_s = math.inf
                if schedule.is_stopped():
                    return  # it was interrupted
                self._note(str(error))
                schedule.pause()
                now_s = clock()
                continue
            self._sent_s = math.inf
            now_s = clock()
            append(round((now_s - due_s) * 1e6))
            if arrivals:
                self.first.append(round((arrivals[0] - due_s) * 1e6))
                self.between += [round((b - a) * 1e6) for a, b in pairwise(arrivals)]

    def _note(self, reason: str) -> None:
        if self._is_late:
            reason, self._is_late = f"no answer within {self._timeout_s:g} s", False
            self.connection.close()
        self.failures[reason] += 1

    def look(self, now_s: float) -> None:
        """Let the request under way fail if it takes too long; from another thread."""
        if now_s - self._sent_s > self._timeout_s:
            self._is_late = True
            self.connection.interrupt()

    def end(self, error: Exception) -> None:
        """Count the error that ends it as a failure."""
        self.is_broken = True
        self.failures[str(error) or repr(error)] += 1
