"""Samples the places of this process's threads: runs in an instance, next to its model.

Imports only Python's own library, 3.8 and newer: a stub loads this file by its path, for the time
of a profile. README.md says how samples are judged.

A sample belongs to the time since the one before. Samples are cheap: a thread that has used no
processor time since the last one has not moved, and is not walked again; places are instructions,
which become lines at the end.
"""

from __future__ import annotations

import gc
import itertools
import opcode
import os
import resource
import sys
import threading
import time
from collections import defaultdict
from operator import attrgetter
from types import CodeType, FrameType
from typing import Any, Callable, Iterator, NamedTuple, Sequence, Tuple

#: States of a thread: it runs Python, computes in C without the interpreter's lock, or waits. A
#: coroutine that is awaited waits apart from the threads.
PYTHON, C, WAITS, AWAITS = range(4)
#: The next sample decides between Python and a wait.
_DOUBT = 4

#: Mean time between samples; longer where they would take more than this share of a processor.
_PERIOD_S, _MOST_COST = 0.01, 0.008
#: Coroutines that wait are looked at in each of so many samples, and no more of them than this.
_AWAITS_EVERY = 10
_MOST_TASKS = 1000
_MOST_FRAMES = 200
#: An interpreter's lock is asked for after this time while one thread runs Python: a thread that
#: gives it away by itself, say after 1 ms, would else never be seen before it does.
_SWITCH_S = 0.0001
#: A thread that has used less processor time since the last sample is one that waits.
_LEAST_SHARE = 0.02
#: A thread that has used none in so many samples is looked at in each of so many.
_ASLEEP_AFTER, _ASLEEP_EVERY = 50, 10
#: Size of a profile; beyond it the rarest stacks are left out.
_MOST_BYTES = 1 << 20
_BYTES_OF_NODE, _BYTES_OF_SAMPLE = 24, 40
#: Frames were made in the collector's reach (CPython's issue 106883): two threads could wait for
#: each other for ever.
_MUST_NOT_COLLECT = (3, 11) <= sys.version_info < (3, 11, 5)
#: The place in a frame: the instruction; the line in old Pythons, which have no table of lines.
_HAS_LINES = hasattr(CodeType, "co_lines")
_place_of = attrgetter("f_lasti" if _HAS_LINES else "f_lineno")
#: A thread that stands at one of these instructions has given the lock away in Python: they call
#: nothing that could compute without it.
_ONLY_PYTHON = {
    opcode.opmap[name]
    for name in ("RESUME", "JUMP_BACKWARD", "JUMP_ABSOLUTE")
    if name in opcode.opmap
}

#: Codes and places, the innermost first: (id of a code, place, id of its caller's, …).
Key = Tuple[int, ...]


def sample(
    instance: Any, seconds: float, request: str = "", most_bytes: int = _MOST_BYTES
) -> dict[str, Any]:
    """Return the profile of this process; with `request`, only of the time of that request."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise RuntimeError(
            "this Python is free-threaded: its threads cannot be sampled; use `zmqtriton-ctl "
            "stacks`"
        )
    ids = instance.request_ids
    sampler = Sampler(lambda: not request or request in ids(), instance.other_threads)
    sampler.run(seconds)
    return sampler.report(instance.directories, most_bytes)


class _Seen:
    """A thread, as the last sample found it."""

    __slots__ = (
        "asleep",
        "clock",
        "cpu_ns",
        "delay",
        "delayed_ns",
        "doubt_ns",
        "key",
        "name",
        "now_ns",
        "state",
        "times",
        "used_ns",
    )

    def __init__(self, name: str, clock: int | None) -> None:
        self.name = name
        #: The number of its processor clock; None if it has none, or none any more.
        self.clock = clock
        #: The clock at the end of the last sample, and now.
        self.cpu_ns = self.now_ns = _read(clock, 0)
        #: The processor time between the last two samples.
        self.used_ns = 0
        #: The time of the last sample, if that has left a doubt.
        self.doubt_ns = 0
        self.key: Key = ()
        #: Nanoseconds and samples at this stack, by the thread's state.
        self.times: list[list[int] | None] = [None] * 3
        #: The number of samples since it has used the processor.
        self.asleep = 0
        #: The descriptors of the files with its state and with its waits for a processor; -1 until
        #: they are asked for.
        self.state = self.delay = -1
        #: Nanoseconds that the thread had waited for a processor at the last look.
        self.delayed_ns = 0

    def is_runnable(self) -> bool:
        """Return whether the thread has a processor, or waits for one."""
        try:
            if self.state < 0:
                self.state = self._open("stat")
            return os.pread(self.state, 512, 0).rpartition(b") ")[2].startswith(b"R")
        except OSError:
            return False

    def delay_ns(self) -> int:
        """Return the nanoseconds that the thread has waited for a processor since the last call."""
        try:
            is_first = self.delay < 0
            if is_first:
                self.delay = self._open("schedstat")
            now, before = int(os.pread(self.delay, 128, 0).split()[1]), self.delayed_ns
        except (OSError, IndexError):  # the thread has ended, or this kernel does not tell
            return 0
        self.delayed_ns = now
        return 0 if is_first else now - before

    def _open(self, name: str) -> int:
        # of the kernel's number of a clock the upper bits are the thread's, inverted
        number = ~((self.clock or 0) >> 3)
        return os.open(f"/proc/self/task/{number}/{name}", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        for descriptor in (self.state, self.delay):
            if descriptor >= 0:
                os.close(descriptor)
        self.state = self.delay = -1


def _read(clock: int | None, otherwise_ns: int) -> int:
    try:
        return otherwise_ns if clock is None else time.clock_gettime_ns(clock)
    except OSError:  # the thread has ended
        return otherwise_ns


def _frames() -> dict[int, FrameType]:
    """Return the innermost frame of each thread, by its number."""
    if not _MUST_NOT_COLLECT or not gc.isenabled():
        return sys._current_frames()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        gc.enable()


def _clocks() -> dict[int, int]:
    """Return the processor clocks of all threads, by their numbers.

    A thread may end between two instructions of Python, and the clock of an ended thread must not
    be read. So all of this is one call of C, during which no other thread runs.
    """
    numbers, same = itertools.tee(
        itertools.chain.from_iterable(itertools.starmap(sys._current_frames, [()]))
    )
    return dict(zip(numbers, map(time.pthread_getcpuclockid, same)))


class _SwitchInterval:
    """The time after which threads request the interpreter's lock; shortened, then restored."""

    def __init__(self) -> None:
        self._usual_s = self._last_s = sys.getswitchinterval()

    def set(self, is_short: bool) -> None:
        """Shorten or restore the interval, unless other code has changed it."""
        wish_s = min(_SWITCH_S, self._usual_s) if is_short else self._usual_s
        if wish_s != self._last_s and abs(sys.getswitchinterval() - self._last_s) < _SWITCH_S / 2:
            sys.setswitchinterval(wish_s)
            self._last_s = wish_s


def _switches() -> int:
    """Return the number of times that this thread has given its processor away."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


class Sampler:
    """The samples of one profile."""

    def __init__(
        self, is_wanted: Callable[[], bool], other_threads: Callable[[], Sequence[int]]
    ) -> None:
        """Set up; `other_threads` returns the numbers of threads to leave out."""
        self._is_wanted = is_wanted
        self._other_threads = other_threads
        self._left_out = {threading.get_ident()}
        #: The outermost code of every sampler's thread in this process.
        self._root = _root()
        self._threads: dict[int, _Seen] = {}
        #: Code objects that were met; they are kept so that their ids are not used again.
        self._codes: dict[int, CodeType] = {}
        #: Nanoseconds and samples, by name of the thread, what it was doing, and stack.
        self._times: dict[tuple[str, int, Key], list[int]] = defaultdict(lambda: [0, 0])
        #: Nanoseconds by name of the thread, of all samples, that it has had a processor or has
        #: waited for one: the kernel's clocks know it exactly.
        self._computed: dict[str, int] = defaultdict(int)
        #: The instructions of codes, by their numbers.
        self._instructions: dict[int, bytes] = {}
        #: The numbers of the codes of `BaseEventLoop.run_forever`, and the loops that they run.
        self._loop_codes: dict[int, bool] = {}
        self._loops: dict[int, Any] = {}
        #: The number of threads that may want the interpreter's lock.
        self._contending = 0
        #: Samples, and the time that they stand for.
        self._samples = self._elapsed_ns = 0
        #: Processor time of all threads but this one, and of this one.
        self._used_ns = self._own_ns = 0
        #: The longest time that something has held the interpreter's lock, and the stack behind it.
        self._held: tuple[int, Key] = (0, ())

    def run(self, seconds: float) -> None:
        """Sample for this number of seconds."""
        interval = _SwitchInterval()
        # Not all equally long: what a model does every 10 ms would be always or never seen.
        shares = itertools.cycle((1.0, 0.6, 1.3, 0.8, 1.4, 0.7, 1.2, 0.9, 1.1, 1.0))
        begin = last = last_awaits = time.perf_counter_ns()
        until, period_s = begin + int(seconds * 1e9), _PERIOD_S
        began_ns, switches = time.thread_time_ns(), _switches()
        try:
            for number in itertools.count(1):
                pause_s = period_s * next(shares)
                time.sleep(pause_s)
                now, before, switches = time.perf_counter_ns(), switches, _switches()
                # one for the sleep; more, if the interpreter's lock was taken when that was over
                held_ns = now - last - int(pause_s * 1e9) if switches - before > 1 else 0
                is_wanted = self._is_wanted()
                self._look(now, now - last, held_ns, is_wanted)
                interval.set(is_short=self._contending <= 1)
                if number % _AWAITS_EVERY == 0:
                    self._read_delays(is_wanted)
                    if is_wanted:
                        self._look_at_tasks(now - last_awaits)
                    last_awaits = now
                    before, self._own_ns = self._own_ns, time.thread_time_ns() - began_ns
                    cost_s = (self._own_ns - before) / _AWAITS_EVERY / 1e9
                    period_s = max(_PERIOD_S, cost_s / _MOST_COST)
                last = now
                if last >= until:
                    self._read_delays(is_wanted)
                    break
        finally:
            interval.set(is_short=False)
            self._loops.clear()
            for seen in self._threads.values():
                seen.close()
        self._own_ns = time.thread_time_ns() - began_ns

    def _look(self, now: int, elapsed_ns: int, held_ns: int, is_wanted: bool) -> None:
        """Take a sample."""
        frames = _frames()
        threads = self._threads
        if not frames.keys() <= threads.keys() | self._left_out:
            self._meet(frames)
        walked: list[_Seen] = []
        for number, frame in frames.items():
            seen = threads.get(number)
            if seen is None:  # it is left out, or has begun at this moment
                continue
            walked.append(seen)
            if seen.asleep < _ASLEEP_AFTER or not (seen.asleep + number) % _ASLEEP_EVERY:
                self._update(number, seen, frame)
        del frames, frame  # which hold what the model's functions do
        if len(walked) < len(threads):
            alive = {id(seen) for seen in walked}
            for number in [n for n, seen in threads.items() if id(seen) not in alive]:
                threads.pop(number).close()
        states = self._judge(walked, now, elapsed_ns, held_ns)
        if is_wanted:
            self._count(walked, states, elapsed_ns, held_ns)

    def _update(self, number: int, seen: _Seen, frame: FrameType) -> None:
        """Read the clock of a thread, and also its stack if the stack may have changed."""
        if seen.clock is not None:
            try:
                seen.now_ns = time.clock_gettime_ns(seen.clock)
            except OSError:  # another thread has its number by now
                self._meet_one(number, seen)
        has_moved = seen.now_ns != seen.cpu_ns
        if seen.doubt_ns:
            # one that has had to give the lock away goes on with the same function
            has_held = has_moved and self._codes[seen.key[0]] is frame.f_code
            self._add(seen, PYTHON if has_held else WAITS, seen.doubt_ns)
            seen.doubt_ns = 0
        if has_moved or not seen.key or seen.clock is None:
            seen.key, seen.times = self._walk(number, frame), [None] * 3

    def _judge(
        self, walked: list[_Seen], looked_ns: int, elapsed_ns: int, held_ns: int
    ) -> list[int]:
        """Return the state of each thread; `looked_ns` is the time when the sample began."""
        states, busy = [WAITS] * len(walked), []
        for at, seen in enumerate(walked):
            used, seen.cpu_ns = seen.now_ns - seen.cpu_ns, seen.now_ns
            seen.used_ns = used
            seen.asleep = 0 if used else seen.asleep + 1
            self._used_ns += used
            if used > elapsed_ns * _LEAST_SHARE:
                busy.append((used, at))
                if seen.delay < 0:
                    seen.delay_ns()
        self._contending = len(busy)
        if len(busy) == 1 and held_ns:
            at = busy[0][1]
            states[at] = PYTHON if self._has_held(walked[at]) else _DOUBT
            return states
        # While this thread has the lock, no other runs Python: a clock that goes on is that of one
        # in C, or for a moment that of one that comes and finds the lock taken.
        least_ns = (time.perf_counter_ns() - looked_ns) // 4
        others = []
        for used, at in busy:
            seen = walked[at]
            goes_on = _read(seen.clock, 0) - seen.now_ns > least_ns
            if goes_on and not self._is_in_python(seen.key):
                states[at] = C
            else:
                others.append((used, at))
        self._contending = len(others)
        if held_ns and others:
            runs = max(others, key=lambda one: (self._is_in_python(walked[one[1]].key), one))
            others.remove(runs)
            states[runs[1]] = PYTHON if self._has_held(walked[runs[1]]) else _DOUBT
        for _, at in others:
            seen = walked[at]
            is_in_python = self._is_in_python(seen.key)
            # one in Python may wait for the lock; else another thread, this one perhaps, has its
            # processor
            if not (is_in_python and held_ns) and seen.is_runnable():
                states[at] = PYTHON if is_in_python else C
        return states

    def _has_held(self, seen: _Seen) -> bool:
        """Return whether a thread certainly had the interpreter's lock, and waits for it again."""
        if self._is_in_python(seen.key) or _read(seen.clock, 0) != seen.now_ns:
            return True
        return seen.is_runnable()

    def _is_in_python(self, key: Key) -> bool:
        """Return whether a stack certainly ends in Python: such a thread waits for the lock."""
        if not _HAS_LINES or not key:
            return False
        number, place = key[:2]
        if number not in self._instructions:
            self._instructions[number] = self._codes[number].co_code
        return self._instructions[number][place] in _ONLY_PYTHON

    def _read_delays(self, is_wanted: bool) -> None:
        """Count how long threads have waited for a processor."""
        for seen in self._threads.values():
            if seen.delay >= 0 and seen.asleep < _ASLEEP_AFTER:
                delay_ns = seen.delay_ns()
                if is_wanted:
                    self._computed[seen.name] += delay_ns

    def _count(self, walked: list[_Seen], states: list[int], elapsed_ns: int, held_ns: int) -> None:
        self._samples += 1
        self._elapsed_ns += elapsed_ns
        for seen, state in zip(walked, states):
            if seen.used_ns:
                self._computed[seen.name] += seen.used_ns
            if (
                state in (PYTHON, _DOUBT)
                and held_ns > self._held[0]
                and not self._is_sampler(seen.key)
            ):
                self._held = held_ns, seen.key
            if state == _DOUBT:
                seen.doubt_ns = elapsed_ns
            else:
                self._add(seen, state, elapsed_ns)

    def _add(self, seen: _Seen, state: int, elapsed_ns: int) -> None:
        times = seen.times[state]
        if times is None:
            times = seen.times[state] = self._times[seen.name, state, seen.key]
        times[0] += elapsed_ns
        times[1] += 1

    def _is_sampler(self, key: Key) -> bool:
        """Return whether a stack belongs to another sampler of this process."""
        return self._codes[key[-2]] is self._root

    def _meet(self, frames: dict[int, FrameType]) -> None:
        """Begin to follow new threads."""
        clocks = _clocks()
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        self._left_out = {threading.get_ident(), *self._other_threads()}
        for number in frames:
            if number not in self._threads and number not in self._left_out:
                name = names.get(number) or "thread without a name"
                self._threads[number] = _Seen(name, clocks.get(number))

    def _meet_one(self, number: int, seen: _Seen) -> None:
        """Follow a new thread that has the number of an ended one."""
        seen.close()
        seen.clock = _clocks().get(number)
        seen.name = next(
            (thread.name for thread in threading.enumerate() if thread.ident == number), seen.name
        )
        seen.cpu_ns = seen.now_ns = _read(seen.clock, 0)
        seen.key, seen.asleep, seen.doubt_ns = (), 0, 0

    def _walk(self, number: int, frame: FrameType | None) -> Key:
        key: list[int] = []
        codes = self._codes
        while frame is not None:
            code = frame.f_code
            number_of_code = id(code)
            if number_of_code not in codes:
                codes[number_of_code] = code
                if code.co_name == "run_forever" and code.co_filename.endswith("base_events.py"):
                    self._loop_codes[number_of_code] = True
            if number_of_code in self._loop_codes and number not in self._loops:
                self._loops[number] = frame.f_locals.get("self")
            key += (number_of_code, _place_of(frame))
            frame = frame.f_back
        return tuple(key[: 2 * _MOST_FRAMES])

    # ---------------------------------------------------------------- coroutines

    def _look_at_tasks(self, elapsed_ns: int) -> None:
        for coroutine in itertools.islice(self._waiting_coroutines(), _MOST_TASKS):
            if key := self._awaits_of(coroutine):
                entry = self._times["", AWAITS, key]
                entry[0] += elapsed_ns
                entry[1] += 1

    def _waiting_coroutines(self) -> Iterator[Any]:
        asyncio = sys.modules.get("asyncio")
        if asyncio is None:
            return
        for loop in list(self._loops.values()):
            running = asyncio.current_task(loop)
            for task in asyncio.all_tasks(loop):
                if task is not running:
                    yield task.get_coro()

    def _awaits_of(self, coroutine: Any) -> Key:
        """Return the stack of a waiting coroutine, through everything that it awaits."""
        key: list[int] = []
        while coroutine is not None and len(key) < 2 * _MOST_FRAMES:
            frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
            if frame is None:
                break
            self._codes.setdefault(id(frame.f_code), frame.f_code)
            key[:0] = (id(frame.f_code), _place_of(frame))
            coroutine = getattr(coroutine, "cr_await", None) or getattr(
                coroutine, "gi_yieldfrom", None
            )
        return tuple(key)

    # -------------------------------------------------------------------- report

    def _shares(self) -> dict[tuple[str, int], float]:
        """Return factors for the times of each thread and state.

        Samples show which of a thread's lines compute, but may be judged wrongly while threads
        contend for the lock. The kernel knows how long the thread has computed.
        """
        seen: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for (name, state, _), (spent_ns, _) in self._times.items():
            if state != AWAITS:
                seen[name][state == WAITS] += spent_ns
        shares: dict[tuple[str, int], float] = {}
        for name, (computed, waited) in seen.items():
            if computed:
                clock_ns = min(self._computed[name], computed + waited)
                shares[name, PYTHON] = shares[name, C] = clock_ns / computed
                if waited:
                    shares[name, WAITS] = (computed + waited - clock_ns) / waited
        return shares

    def report(self, directories: Any, most_bytes: int = _MOST_BYTES) -> dict[str, Any]:
        """Return the profile as a document: a tree of frames, and the time at its nodes.

        Beyond `most_bytes`, the stacks with the least time are left out, and counted.
        """
        tree = _Tree(self._codes, tuple(f"{one.rstrip('/')}/" for one in directories))
        samples: list[tuple[int, str, int, int, int]] = []
        left_out, shares = 0, self._shares()
        times = (
            (int(spent_ns * shares.get(place[:2], 1.0)), count, place)
            for place, (spent_ns, count) in self._times.items()
        )
        for spent_ns, count, (name, state, key) in sorted(times, key=lambda one: -one[0]):
            if key and self._is_sampler(key):
                continue
            if tree.bytes + len(samples) * _BYTES_OF_SAMPLE < most_bytes:
                samples.append((tree.node(key), name, state, spent_ns, count))
            else:
                left_out += spent_ns
        held_ns, held = self._held
        return {
            "seconds": self._elapsed_ns / 1e9,
            "samples": self._samples,
            "directories": list(directories),
            "functions": tree.functions,
            "frames": tree.frames,
            "nodes": tree.nodes,
            "times": samples,
            "left_out_ns": left_out,
            "held_ns": held_ns,
            "held": tree.node(held) if held else -1,
            "cpu_ns": self._used_ns,
            "own_ns": self._own_ns,
        }


def _root() -> CodeType:
    """Return the outermost code of this thread."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code


class _Function(NamedTuple):
    name: str
    file: str
    line: int
    #: 1 for a function of the model's own files.
    is_own: int
    #: 1 for a coroutine.
    is_coroutine: int


class _Tree:
    """Stacks as a tree, as small as a flame graph: frames with the same callers are one node."""

    def __init__(self, codes: dict[int, CodeType], directories: tuple[str, ...]) -> None:
        self._codes = codes
        self._directories = directories
        self.functions: list[_Function] = []
        #: Function and line.
        self.frames: list[tuple[int, int]] = []
        #: The node of the caller, -1 for none, and the frame.
        self.nodes: list[tuple[int, int]] = []
        self.bytes = 0
        self._function_numbers: dict[int, int] = {}
        self._frame_numbers: dict[tuple[int, int], int] = {}
        self._node_numbers: dict[tuple[int, int], int] = {}
        self._lines: dict[int, dict[int, int]] = {}

    def node(self, key: Key) -> int:
        """Return the node number of a stack's innermost frame; -1 for an empty stack."""
        parent = -1
        for at in range(len(key) - 2, -1, -2):
            function = self._function(key[at])
            frame = self._number(
                self._frame_numbers, self.frames, (function, self._line(key[at], key[at + 1]))
            )
            parent = self._number(self._node_numbers, self.nodes, (parent, frame))
        return parent

    def _number(
        self, numbers: dict[tuple[int, int], int], rows: list[tuple[int, int]], row: tuple[int, int]
    ) -> int:
        if row not in numbers:
            numbers[row] = len(rows)
            rows.append(row)
            self.bytes += _BYTES_OF_NODE
        return numbers[row]

    def _function(self, number: int) -> int:
        if number not in self._function_numbers:
            code = self._codes[number]
            name = getattr(code, "co_qualname", code.co_name)
            own = code.co_filename.startswith(self._directories)
            is_own = own and "/site-packages/" not in code.co_filename
            is_coroutine = bool(code.co_flags & 0x80)  # inspect.CO_COROUTINE
            self._function_numbers[number] = len(self.functions)
            self.functions.append(
                _Function(name, code.co_filename, code.co_firstlineno, is_own, is_coroutine)
            )
            self.bytes += len(name) + len(code.co_filename) + _BYTES_OF_NODE
        return self._function_numbers[number]

    def _line(self, number: int, place: int) -> int:
        if not _HAS_LINES:
            return place
        lines = self._lines.get(number)
        if lines is None:
            lines = self._lines[number] = {}
            for begin, end, line in self._codes[number].co_lines():
                lines.update((at, line or 0) for at in range(begin, end, 2))
        return lines.get(place, 0) or self._codes[number].co_firstlineno
