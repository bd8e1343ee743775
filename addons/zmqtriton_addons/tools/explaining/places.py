"""The place in a model's code at which one of its processes is, by the stacks that Python writes.

Does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from zmqtriton_addons.tools.explaining.words import place_text

_STACK = re.compile(r"(Current thread|Thread|Stack) .*\(most recent call first\)")
_FRAME = re.compile(r'\s*File "(.+)", line (\d+) in (.+)')
_OURS = "/zmqtriton_stub/"
#: All of a model's code is called from here.
_CALLER = "/zmqtriton_stub/model.py"
#: What may lie between that and the model, where it is imported or is a coroutine.
_BETWEEN = re.compile(r"<frozen |.*/(importlib|asyncio)/|.*/selectors\.py$")


class _Frame(NamedTuple):
    file: str
    line: str
    function: str


def find_place(lines: Iterable[str]) -> str:
    """Return the place as in ` (model.py, line 8, in execute)`; "" if no thread is in the model.

    Of a model that waits in a library, its own line is told that has called it.
    """
    for stack in _stacks(lines):
        frames = _frames_of_model(stack)
        if frames:
            directory = frames[0].file.rpartition("/")[0]
            own = [frame for frame in frames if frame.file.startswith(f"{directory}/")]
            return place_text(*own[-1])
    return ""


def _stacks(lines: Iterable[str]) -> Iterator[list[_Frame]]:
    """Yield the frames of each thread, the innermost first."""
    frames: list[_Frame] = []
    for line in lines:
        if _STACK.match(line):
            yield frames
            frames = []
        elif match := _FRAME.match(line):
            frames.append(_Frame(*match.groups()))
    yield frames


def _frames_of_model(stack: Sequence[_Frame]) -> list[_Frame]:
    """Return the frames of a model's code and of what it has called, the outermost first."""
    calls = [number for number, frame in enumerate(stack) if frame.file.endswith(_CALLER)]
    if not calls:
        return []
    frames: list[_Frame] = []
    for frame in reversed(stack[: calls[0]]):
        if _OURS in frame.file:
            break
        if frames or not _BETWEEN.match(frame.file):
            frames.append(frame)
    return frames
