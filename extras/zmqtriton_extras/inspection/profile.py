"""A profile as a server answers it: its stacks, and the lines of the model where the time went.

Models make what is in it, so all of it is checked, and nothing of it is believed to be short.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from zmqtriton_floor.errors import InternalError

#: States of a thread; the numbers are the sampler's.
DOING = ("Python", "C", "waits", "awaits")
PYTHON, C, WAITS, AWAITS = range(len(DOING))
#: The end of the path of a file whose frames are only in a thread that executes requests.
_LOOP = os.path.join("zmqtriton_stub", "loop.py")
_HANDLE = "Handle._run", "_run"
#: The beginning of the name under which a coroutine's time is.
_COROUTINE = "coroutine "
_MOST_FRAMES = 1000


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
    def place(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"


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
        """The position of the innermost frame in a file of the model; -1 without one."""
        positions = range(len(self.frames) - 1, -1, -1)
        return next((at for at in positions if self.frames[at].is_own), -1)

    @property
    def is_of_requests(self) -> bool:
        """True in the thread that executes requests."""
        return any(frame.file.endswith(_LOOP) for frame in self.frames)

    @property
    def is_idle(self) -> bool:
        """True for time that keeps no request waiting.

        A thread waits for requests, or is one of the model's or a library's that waits for work.
        """
        counts = self.is_of_requests or self.thread.startswith(_COROUTINE)
        return self.doing == WAITS and (self.own < 0 or not counts)


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

    def shown(self, file: str) -> str:
        """Return a file of the model by its path within the model's directory."""
        for directory in self.directories:
            if file.startswith(f"{directory}{os.sep}"):
                return file[len(directory) + 1 :]
        return os.path.basename(file)


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
        raise InternalError(f"an instance has answered with no profile: {error!r}") from None


def _read(document: Mapping[str, Any]) -> Profile:
    stacks: list[Stack] = []
    names, errors, directories = [], [], dict[str, None]()
    seconds = left_out_s = own_s = 0.0
    samples, held_s = 0, 0.0
    held: tuple[Frame, ...] = ()
    for one in document["instances"]:
        name = str(one["instance"])
        if "error" in one:
            errors.append(str(one["error"]))
            continue
        names.append(name)
        part = one["profile"]
        tree = _Tree(part)
        stacks += _stacks(name, part["times"], tree)
        seconds += float(part["seconds"])
        samples += int(part["samples"])
        left_out_s += int(part["left_out_ns"]) / 1e9
        own_s += int(part["own_ns"]) / 1e9
        directories.update(dict.fromkeys(str(each).rstrip(os.sep) for each in part["directories"]))
        if int(part["held_ns"]) / 1e9 > held_s:
            held_s, held = int(part["held_ns"]) / 1e9, tree.frames(int(part["held"]))
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
    for node, thread, doing, ns, count in times:
        frames = tree.frames(int(node))
        if DOING[doing] and int(ns) >= 0:
            yield Stack(instance, *_under_its_task(str(thread), frames, doing), int(ns), int(count))


def _under_its_task(
    thread: str, frames: tuple[Frame, ...], doing: int
) -> tuple[str, int, tuple[Frame, ...]]:
    """Return the frames of a coroutine without those of its event loop, under its own name."""
    if doing == AWAITS and frames:
        return f"{_COROUTINE}{frames[0].function}", doing, frames
    for at in range(len(frames) - 1, 0, -1):
        caller = frames[at - 1]
        if frames[at].is_coroutine and caller.function in _HANDLE and "asyncio" in caller.file:
            return f"{_COROUTINE}{frames[at].function}", doing, frames[at:]
    return thread, doing, frames


class _Tree:
    def __init__(self, part: Mapping[str, Any]) -> None:
        self._functions = part["functions"]
        self._frames = part["frames"]
        self._nodes = part["nodes"]

    def frames(self, node: int) -> tuple[Frame, ...]:
        """Return the stack of a node, the outermost first. Raises ValueError for an endless one."""
        frames: list[Frame] = []
        while node >= 0:
            node, number = self._nodes[node]
            function, line = self._frames[number]
            name, file, begins, is_own, is_coroutine = self._functions[function]
            frames.append(
                Frame(
                    str(name), str(file), int(line), int(begins), bool(is_own), bool(is_coroutine)
                )
            )
            if len(frames) > _MOST_FRAMES:
                raise ValueError("a stack without an end")
        return tuple(reversed(frames))


# ------------------------------------------------------------------- summaries


def lines_of(profile: Profile) -> list[Line]:
    """Return the model's lines, those with the most time first.

    Threads of the model that only wait, for work perhaps, count with what they compute.
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


def idle_s(profile: Profile) -> float:
    """Return the seconds that the threads which execute requests have waited for them."""
    return sum(s.ns for s in profile.stacks if s.is_idle and s.is_of_requests) / 1e9
