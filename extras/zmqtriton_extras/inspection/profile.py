"""A profile from a server: its stacks, and the lines of the model that took the time.

Its content comes from models, so all of it is checked and limited.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from zmqtriton.sdk.wire import InternalError

#: States of a thread; the numbers are the sampler's.
DOING = ("Python", "C", "waits", "awaits")
PYTHON, C, WAITS, AWAITS = range(len(DOING))
#: The end of the path of a file whose frames are only in a thread that executes requests.
_LOOP = os.path.join("zmqtriton_stub", "loop.py")
_HANDLE = "Handle._run", "_run"
#: The beginning of the name under which a coroutine's time is.
_COROUTINE = "coroutine "
#: Files of Python's own library with the waits of a thread for another one.
_OF_WAITS = "threading.py", "queue.py"
#: Share of the time above which waits of requests are worth a look at other threads.
_MUCH = 0.1
#: Limits of what is read: an instance sends no deeper stacks, but a model could send anything.
_MOST_FRAMES, _MOST_FRAMES_IN_ALL = 200, 400_000
_MOST_DIRECTORIES, _LONGEST_TEXT = 16, 512
_MOST_SECONDS, _MOST_NS, _MOST_LINES = 1_000_000, 1 << 60, 1 << 31
#: The directories of a file of a package or of the server.
_PACKAGES = re.compile(r".*/(?:(?:site|dist)-packages|python\d[\d.]*)/|.*/(?=zmqtriton_[a-z]+/)")


class Frame(NamedTuple):
    function: str
    file: str
    line: int
    #: Line of the function's definition.
    begins: int
    #: True for the model's own files.
    is_own: bool = False
    is_coroutine: bool = False

    @property
    def file_name(self) -> str:
        return os.path.basename(self.file)

    @property
    def place(self) -> str:
        return f"{self.file_name}:{self.line}"


class Stack(NamedTuple):
    """The time of a thread or a coroutine at one place."""

    instance: str
    #: The name of the thread; of a coroutine that is run or awaited, its own.
    thread: str
    doing: int
    #: The outermost first.
    frames: tuple[Frame, ...]
    ns: int
    samples: int

    @property
    def own(self) -> int:
        """The position of the innermost frame in the model's files; -1 without one."""
        positions = range(len(self.frames) - 1, -1, -1)
        return next((at for at in positions if self.frames[at].is_own), -1)

    @property
    def is_of_requests(self) -> bool:
        """True in the thread that executes requests."""
        return any(frame.file.endswith(_LOOP) for frame in self.frames)

    @property
    def is_idle(self) -> bool:
        """True for time that keeps no request waiting.

        The thread waits for requests, or belongs to the model or a library and waits for work.
        """
        counts = self.is_of_requests or self.thread.startswith(_COROUTINE)
        return self.doing == WAITS and (self.own < 0 or not counts)

    @property
    def is_beside_requests(self) -> bool:
        """True for a wait of the model's own code in a thread that executes no request."""
        return self.is_idle and self.own >= 0 and not self.is_of_requests

    @property
    def may_wait_for_a_thread(self) -> bool:
        """True for a wait of a request that another thread may end, such as for a lock."""
        last = self.frames[-1:]
        return (
            self.doing == WAITS
            and not self.is_idle
            and any(f.is_own or os.path.basename(f.file) in _OF_WAITS for f in last)
        )


class Profile(NamedTuple):
    model: str
    #: Instances that were profiled, and the reasons of those that were not.
    instances: tuple[str, ...]
    errors: tuple[str, ...]
    #: Seconds that the samples stand for, and the number of samples, of all instances together.
    seconds: float
    samples: int
    stacks: tuple[Stack, ...]
    directories: tuple[str, ...] = ()
    #: Seconds of stacks that did not fit into the answer.
    left_out_s: float = 0.0
    #: The longest time that something kept the interpreter's lock, and the frames behind it.
    held_s: float = 0.0
    held: tuple[Frame, ...] = ()
    #: Processor time of the samples themselves.
    own_s: float = 0.0

    @property
    def counted(self) -> list[Stack]:
        """The stacks without idle time.

        If requests wait long, perhaps for another thread of the model, waits of that thread are
        included: a thread can sleep while it holds a lock.
        """
        waits_s = sum(stack.ns for stack in self.stacks if stack.may_wait_for_a_thread) / 1e9
        has_others = waits_s > _MUCH * self.seconds
        return [
            stack
            for stack in self.stacks
            if not stack.is_idle or (has_others and stack.is_beside_requests)
        ]

    def shown(self, file: str) -> str:
        """Return a file of the model by its path within the model's directory."""
        return self._within_model(file) or os.path.basename(file)

    def without_directories(self) -> Profile:
        """Return the profile for a client, which may not see directories of the server.

        Files have their paths within the model, a package or the server.
        """

        def shown(frame: Frame) -> Frame:
            package = _PACKAGES.match(frame.file)
            inner = package and frame.file[package.end() :]
            return frame._replace(file=self._within_model(frame.file) or inner or frame.file_name)

        frames = {frame: shown(frame) for stack in self.stacks for frame in stack.frames}
        stacks = (s._replace(frames=tuple(frames[f] for f in s.frames)) for s in self.stacks)
        return self._replace(
            stacks=tuple(stacks), held=tuple(map(shown, self.held)), directories=()
        )

    def _within_model(self, file: str) -> str:
        """Return the path of a file within the model's directory; "" for another file."""
        for directory in self.directories:
            if file.startswith(f"{directory}{os.sep}"):
                return file[len(directory) + 1 :]
        return ""


class Line(NamedTuple):
    """A line of the model's own files, and the time that was spent in it and below."""

    frame: Frame
    #: Seconds, by what was done.
    seconds: tuple[float, float, float, float]
    #: The frame further in with the most time, and its seconds; None if there is none.
    below: Frame | None
    below_s: float

    @property
    def total_s(self) -> float:
        return sum(self.seconds)


def read(document: Mapping[str, Any]) -> Profile:
    """Return the profile in an answer. Raises InternalError for another document."""
    try:
        return _read(document)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise InternalError(f"an instance has returned no profile, try again: {error!r}") from None


def _read(document: Mapping[str, Any]) -> Profile:
    stacks: list[Stack] = []
    names, errors, directories = [], [], dict[str, None]()
    seconds = left_out_s = own_s = 0.0
    samples, held_s = 0, 0.0
    held: tuple[Frame, ...] = ()
    for one in document["instances"]:
        name = _text(one["instance"])
        if "error" in one:
            errors.append(str(one["error"]))
            continue
        names.append(name)
        part = one["profile"]
        tree = _Tree(part, _MOST_FRAMES_IN_ALL // len(document["instances"]))
        for stack in _stacks(name, part["times"], tree):
            if tree.has_room:
                stacks.append(stack)
            else:
                left_out_s += stack.ns / 1e9
        seconds += _seconds(part["seconds"], least=0 if not part["samples"] else 1e-9)
        samples += _number(part["samples"], _MOST_NS)
        left_out_s += _number(part["left_out_ns"], _MOST_NS) / 1e9
        own_s += _number(part["own_ns"], _MOST_NS) / 1e9
        directories.update(
            dict.fromkeys(
                _text(each).rstrip(os.sep) for each in part["directories"][:_MOST_DIRECTORIES]
            )
        )
        if _number(part["held_ns"], _MOST_NS) / 1e9 > held_s:
            held_s, held = part["held_ns"] / 1e9, tree.frames(int(part["held"]))
    return Profile(
        str(document["model"]),
        tuple(names),
        tuple(errors),
        seconds,
        samples,
        tuple(stacks),
        tuple(directories),
        left_out_s,
        held_s,
        held,
        own_s,
    )


def _stacks(instance: str, times: Sequence[Any], tree: _Tree) -> Iterator[Stack]:
    """Yield the stacks; if the tree is full, further stacks have no frames."""
    for node, thread, doing, ns, count in times:
        ns, count = _number(ns, _MOST_NS), _number(count, _MOST_NS)
        frames = tree.frames(int(node)) if tree.has_room else ()
        if DOING[doing]:
            yield Stack(instance, *_under_its_task(_text(thread), frames, doing), ns, count)


def _text(value: Any) -> str:
    """Return a text, cut to a limit. Raises TypeError for another value."""
    if type(value) is not str:
        raise TypeError(f"expected a text, got {type(value).__name__}")
    return value[:_LONGEST_TEXT]


def _number(value: Any, limit: int) -> int:
    """Return an integer between 0 and a limit. Raises ValueError for another one."""
    number = int(value)
    if not 0 <= number <= limit:
        raise ValueError(f"expected a number from 0 to {limit}")
    return number


def _seconds(value: Any, least: float) -> float:
    seconds = float(value)
    if not least <= seconds <= _MOST_SECONDS:
        raise ValueError(f"expected {least:g} to {_MOST_SECONDS} seconds")
    return seconds


def _under_its_task(
    thread: str, frames: tuple[Frame, ...], doing: int
) -> tuple[str, int, tuple[Frame, ...]]:
    """Return the frames of a coroutine under its own name, without its event loop's frames."""
    if doing == AWAITS and frames:
        return f"{_COROUTINE}{frames[0].function}", doing, frames
    for at in range(len(frames) - 1, 0, -1):
        caller = frames[at - 1]
        if frames[at].is_coroutine and caller.function in _HANDLE and "asyncio" in caller.file:
            return f"{_COROUTINE}{frames[at].function}", doing, frames[at:]
    return thread, doing, frames


class _Tree:
    def __init__(self, part: Mapping[str, Any], room: int) -> None:
        self._functions = part["functions"]
        self._frames = part["frames"]
        self._nodes = part["nodes"]
        #: Frames by their numbers: each is in many stacks.
        self._made: dict[int, Frame] = {}
        #: Number of further frames that the stacks can have.
        self._room = room

    @property
    def has_room(self) -> bool:
        return self._room >= 0

    def frames(self, node: int) -> tuple[Frame, ...]:
        """Return the stack of a node, the outermost first. Raises ValueError for an endless one."""
        frames: list[Frame] = []
        while node >= 0:
            node, number = self._nodes[node]
            frames.append(self._made.get(number) or self._frame(number))
            if len(frames) > _MOST_FRAMES:
                raise ValueError("a stack without an end")
        self._room -= len(frames)
        return tuple(reversed(frames))

    def _frame(self, number: int) -> Frame:
        function, line = self._frames[number]
        name, file, begins, is_own, is_coroutine = self._functions[function]
        self._made[number] = frame = Frame(
            _text(name),
            _text(file),
            _number(line, _MOST_LINES),
            _number(begins, _MOST_LINES),
            bool(is_own),
            bool(is_coroutine),
        )
        return frame


# ------------------------------------------------------------------- summaries


def lines_of(profile: Profile) -> list[Line]:
    """Return the model's lines, those with the most time first.

    Threads of the model that only wait, perhaps for work, count only while they compute.
    """
    seconds: dict[tuple[str, int], list[float]] = defaultdict(lambda: [0.0] * len(DOING))
    frames: dict[tuple[str, int], Frame] = {}
    below: dict[tuple[str, int], dict[Frame, float]] = defaultdict(lambda: defaultdict(float))
    for stack in profile.stacks:
        at = stack.own
        if at < 0 or stack.is_idle:
            continue
        frame = stack.frames[at]
        key = frame.file, frame.line
        frames[key] = frame
        seconds[key][stack.doing] += stack.ns / 1e9
        if at + 1 < len(stack.frames):
            below[key][stack.frames[-1]] += stack.ns / 1e9
    lines = []
    for key, frame in frames.items():
        inner = max(below[key].items(), key=lambda item: item[1], default=(None, 0.0))
        python, c, waits, awaits = seconds[key]
        lines.append(Line(frame, (python, c, waits, awaits), *inner))
    return sorted(lines, key=lambda line: -line.total_s)


def others_of(profile: Profile) -> list[tuple[str, Frame, float]]:
    """Return waiting threads that execute no requests, with the model's line and the seconds.

    One of them may hold the lock that a request waits for: Python does not tell the holder. Empty
    if requests do not wait much.
    """
    seconds: dict[tuple[str, Frame], float] = defaultdict(float)
    for stack in profile.counted:
        if stack.is_beside_requests:
            seconds[stack.thread, stack.frames[stack.own]] += stack.ns / 1e9
    rows = [(thread, frame, value) for (thread, frame), value in seconds.items()]
    return sorted(rows, key=lambda row: -row[2])


def idle_s(profile: Profile) -> float:
    """Return the seconds that the threads which execute requests have waited for them."""
    return sum(s.ns for s in profile.stacks if s.is_idle and s.is_of_requests) / 1e9
