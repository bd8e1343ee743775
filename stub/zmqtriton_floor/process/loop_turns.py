"""The length of the turns of a process's loop, and the place in the code of a long one.

A turn is what a loop does between two waits; everything that needs the loop waits for its end.
Three things count: the processor time that the turn takes, the time that calls block it, and the
time that another thread keeps the interpreter's lock. A wait for a processor of a busy machine does
not count, nor a stop of the whole process: its watcher, a thread, notices that by coming late
itself. It comes late for the lock, too, but then the kernel has counted processor time of the
process's other threads. The watcher also looks where in the code a long turn is.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from itertools import islice
from types import FrameType
from typing import Any, Callable, Dict, List, Optional, Tuple

from zmqtriton_floor.process.named_tuples import NamedTuple

_log = logging.getLogger(__name__)

#: Shorter turns are not looked at: most take less than a thousandth of that.
NOTED_NS = 10_000_000
#: Others wait too long for longer ones.
LONG_NS = 250_000_000
#: The upper bounds of the histogram.
BOUNDS_S = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
#: Interval between the looks of the watcher, and the minimum age of a turn whose place it records.
_WATCH_NS, _SAMPLED_NS = 200_000_000, 45_000_000
#: Age at which the watcher logs that a turn does not end; time without a processor does not count.
_ENDLESS_NS = 5_000_000_000
#: A longest turn stays in reports for this time, or up to twice that, as two periods are kept.
_PERIOD_NS = 300_000_000_000
#: Minimum time between log lines about long turns, unless a turn is longer than the one logged
#: last.
_TELL_EVERY_NS = 60_000_000_000
_FRAMES = 8
#: Names of functions that wait for work.
_WAITS = frozenset(("_worker", "accept", "get", "nap", "poll", "select", "wait"))


class Use(NamedTuple):
    """The use of the processors by a thread so far, and by its process."""

    cpu_ns: int
    #: Time that the thread was ready to run, but waited for a processor that others used.
    waited_ns: int
    of_process_ns: int = 0


class Turn(NamedTuple):
    """A turn that has ended."""

    cpu_ns: int
    stood_ns: int
    #: Time that it waited for a processor, or the process was stopped; this does not count.
    waited_ns: int
    #: Functions that the turn was in, the innermost first; "" if the watcher has not looked.
    place: str
    #: End of the turn on the wall clock, in seconds since 1970.
    at_s: float
    #: Duration of another thread's hold of the interpreter's lock.
    locked_ns: int = 0

    @property
    def counted_ns(self) -> int:
        return self.cpu_ns + self.stood_ns + self.locked_ns

    def describe(self) -> str:
        """Return a line for people."""
        text = f"{self.cpu_ns / 1e9:.3f} s of CPU, {self.stood_ns / 1e9:.3f} s in calls"
        text += f", {self.locked_ns / 1e9:.3f} s for a lock" if self.locked_ns else ""
        text += f" (and {self.waited_ns / 1e9:.3f} s without a processor)"
        return f"{text}, at {self.place}" if self.place else text

    def document(self) -> Dict[str, Any]:
        times = {"cpu_s": self.cpu_ns, "stood_s": self.stood_ns, "waited_s": self.waited_ns}
        times["locked_s"] = self.locked_ns
        return {
            **{name: round(ns / 1e9, 3) for name, ns in times.items()},
            "place": self.place,
            "at_s": self.at_s,
        }


def use_of_this_thread() -> Callable[[], Use]:
    """Return a reader of the use of the calling thread."""
    try:
        descriptor = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        os.pread(descriptor, 64, 0).split()[1]
    except (OSError, IndexError):  # not every kernel counts waits
        return lambda: Use(time.thread_time_ns(), 0, time.process_time_ns())

    def read() -> Use:
        cpu, waited, _ = os.pread(descriptor, 64, 0).split()
        return Use(int(cpu), int(waited), time.process_time_ns())

    return read


def _name_of_this_thread() -> str:
    try:
        with open("/proc/thread-self/comm") as file:
            return file.read().strip()
    except OSError:
        return "a process"


class LoopTurns:
    """The turns of the loop that runs in the thread which creates this object.

    A loop that waits by itself calls begin() and end(), or does the same in place. A loop that
    another library runs calls beat() at times that are known before.
    """

    def __init__(
        self,
        clock: Callable[[], int] = time.monotonic_ns,
        read_use: Optional[Callable[[], Use]] = None,
    ) -> None:
        self._clock = clock
        self._read_use = use_of_this_thread() if read_use is None else read_use
        self._name = _name_of_this_thread()
        self._thread = threading.get_ident()
        #: Begin of the present turn, or of the next one that beat() expects; 0 while the loop
        #: waits.
        self.begun_ns = 0
        #: The end of a turn from here on is worth a look.
        self.look_from_ns = 0
        self._use = Use(0, 0)
        #: How late the watcher was, in all and at the last reading, and when it last came.
        self._absent_ns = self._absent_before_ns = 0
        self._watched_ns = 0
        #: Begin of the last turn that the watcher has looked into, and its place in the code.
        self._seen: Tuple[int, str] = (0, "")
        self._told_endless = 0
        self._is_watched = True
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_ns = 0
        #: The longest turns of this period and of the one before.
        self._longest: List[Optional[Turn]] = [None, None]
        self._period_from_ns = clock()
        self._tell_from_ns = 0
        self._told_ns = 0

    # ---------------------------------------------------------------- the loop

    def begin(self) -> None:
        """Begin a turn: the loop has been woken."""
        self.begun_ns = self._clock()

    def end(self) -> None:
        """End a turn, if there is one: the loop waits again."""
        now_ns = self._clock()
        if now_ns > self.look_from_ns:
            self.look_back(now_ns)
        self.begun_ns = 0

    def look_back(self, now_ns: int) -> None:
        """Record the turn that ends now if it is long; else only read the use of processors."""
        if self.begun_ns and now_ns - self.begun_ns > NOTED_NS:
            self._note(self.begun_ns, now_ns)
        else:
            self._read(now_ns)

    def beat(self, due_ns: int, next_ns: int) -> None:
        """Record a turn that has delayed this call since `due_ns`; the next is due at `next_ns`.

        The processor time since the call before counts as that of the turn.
        """
        self.begun_ns = due_ns
        self.look_back(self._clock())
        self.begun_ns = next_ns

    def _read(self, now_ns: int) -> None:
        """Read the use of processors so far, as the base to measure the next long turn from."""
        self.look_from_ns = now_ns + NOTED_NS
        self._use, self._absent_before_ns = self._read_use(), self._absent_ns

    def _note(self, begun_ns: int, now_ns: int) -> None:
        before, absent_before_ns = self._use, self._absent_before_ns
        self._read(now_ns)
        took_ns = now_ns - begun_ns
        cpu_ns, queued_ns, of_process_ns = (now - then for now, then in zip(self._use, before))
        others_ns, cpu_ns = of_process_ns - cpu_ns, min(took_ns, cpu_ns)
        absent_ns = self._absent_ns - absent_before_ns
        if self._watched_ns:
            absent_ns += max(0, now_ns - self._watched_ns - _WATCH_NS)
        # late without a processor, or for the lock of a thread that has one
        locked_ns = max(0, min(absent_ns, took_ns - cpu_ns) - queued_ns)
        locked_ns = max(0, min(locked_ns, others_ns))
        waited_ns = min(took_ns - cpu_ns - locked_ns, max(queued_ns, absent_ns - locked_ns))
        place = self._seen[1] if self._seen[0] == begun_ns else ""
        if locked_ns > LONG_NS:
            place = _place_of_another(self._thread)
        stood_ns = took_ns - cpu_ns - waited_ns - locked_ns
        if stood_ns > LONG_NS and not place and self._watched_ns:
            # the watcher had no processor, which is no proof that the loop had one
            stood_ns, waited_ns = 0, waited_ns + stood_ns
        turn = Turn(cpu_ns, stood_ns, waited_ns, place, time.time(), locked_ns)
        if turn.counted_ns > NOTED_NS:
            self._keep(turn, now_ns)

    def _keep(self, turn: Turn, now_ns: int) -> None:
        counted_ns = turn.counted_ns
        index = next((i for i, s in enumerate(BOUNDS_S) if counted_ns <= s * 1e9), len(BOUNDS_S))
        self.counts[index] += 1
        self.sum_ns += counted_ns
        self._pass_time(now_ns)
        longest = self._longest[0]
        if longest is None or counted_ns > longest.counted_ns:
            self._longest[0] = turn
        is_worse = now_ns >= self._tell_from_ns or counted_ns > self._told_ns
        if counted_ns > LONG_NS and is_worse:
            self._tell_from_ns, self._told_ns = now_ns + _TELL_EVERY_NS, counted_ns
            _log.warning("a turn of the loop of %s took long: %s", self._name, turn.describe())

    def _pass_time(self, now_ns: int) -> None:
        periods = (now_ns - self._period_from_ns) // _PERIOD_NS
        if periods:
            self._period_from_ns += periods * _PERIOD_NS
            self._longest = [None, self._longest[0] if periods == 1 else None]

    # --------------------------------------------------------------- what is told

    @property
    def longest(self) -> Optional[Turn]:
        """The longest turn of the last minutes; None if none was worth a look."""
        self._pass_time(self._clock())
        return max(filter(None, self._longest), key=lambda turn: turn.counted_ns, default=None)

    def document(self) -> Dict[str, Any]:
        longest = self.longest
        return {
            "counts": list(self.counts),
            "sum_s": round(self.sum_ns / 1e9, 3),
            "longest": None if longest is None else longest.document(),
        }

    # ---------------------------------------------------------------- the watcher

    def watch(self) -> None:
        """Start the thread that looks into long turns; if no thread can start, do without it."""
        thread = threading.Thread(target=self._watch, name="turns", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            _log.info("long turns of the loop are told without their place: %s", error)

    def end_watch(self) -> None:
        """Have the watcher end soon: the loop goes on without it, or has ended."""
        self._is_watched = False

    def _watch(self) -> None:
        while self._is_watched:
            self.nap()
            self.look()

    def nap(self) -> None:
        """Wait until it is time for the next look, and note how late that is."""
        began_ns = self._watched_ns = self._clock()
        time.sleep(_WATCH_NS / 1e9)
        now_ns = self._watched_ns = self._clock()
        self._absent_ns += max(0, now_ns - began_ns - _WATCH_NS)

    def look(self) -> None:
        """Record where in the code the loop is, if its current turn takes long."""
        begun_ns, age_ns = self.begun_ns, self._clock() - self.begun_ns
        if not begun_ns or age_ns < _SAMPLED_NS:
            return
        if self._seen[0] != begun_ns:
            self._seen = begun_ns, _place_of(sys._current_frames().get(self._thread))
        elif age_ns - self._unserved_ns() > _ENDLESS_NS and self._told_endless != begun_ns:
            self._told_endless = begun_ns
            place = _place_of(sys._current_frames().get(self._thread))
            _log.warning(
                "the loop of %s is at one turn for %d s: %s", self._name, age_ns / 1e9, place
            )

    def _unserved_ns(self) -> int:
        """Return for how long the loop has had no processor since the last reading."""
        waited_ns = self._read_use().waited_ns - self._use.waited_ns
        return max(waited_ns, self._absent_ns - self._absent_before_ns)


def _place_of_another(thread: int) -> str:
    """Return the place in the code of another thread that does not wait; "" without one."""
    frames = [each for other, each in sys._current_frames().items() if other != thread]
    return _place_of(next((each for each in frames if each.f_code.co_name not in _WAITS), None))


def _place_of(frame: Optional[FrameType]) -> str:
    """Return the innermost functions of a stack as a text; "" without a stack."""
    frames = () if frame is None else islice(traceback.walk_stack(frame), _FRAMES)
    codes = ((each.f_code, line) for each, line in frames)
    return " < ".join(
        f"{c.co_name} ({os.path.basename(c.co_filename)}:{line})" for c, line in codes
    )
