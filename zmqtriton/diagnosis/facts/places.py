"""Places in the code of a model: in the texts of errors, and in the stacks of its processes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from zmqtriton_floor.reasons import own_frame

_PLACES = re.compile(r"^At:\n((?:  .*(?:\n|$))+)", re.MULTILINE)
_PLACE = re.compile(r"^  (.+?)\((\d+)\): ([\w<>.]+)", re.MULTILINE)
_STACK = re.compile(r"(Current thread|Thread|Stack) .*\(most recent call first\)")
_FRAME = re.compile(r'\s*File "(.+)", line (\d+) in (.+)')
_OURS = "/zmqtriton_stub/"
#: End of the path of the file that calls all of a model's code.
_CALLER = "/zmqtriton_stub/model.py"
#: Files of frames between the caller and the model's own: of an import, or a coroutine's loop.
_BETWEEN = re.compile(r"<frozen |.*/(importlib|asyncio)/|.*/selectors\.py$")


def place_in(text: str) -> str:
    """Return the place in the model that a text names; "" if it names none."""
    # of an error that a called model has answered, the last place is the caller's
    frames = _PLACE.findall(["", *_PLACES.findall(text)][-1])
    return Frame.text_of(*Frame.own_of(frames)) if frames else ""


class Frame(NamedTuple):
    file: str
    line: str
    function: str

    @staticmethod
    def own_of(frames: Sequence[Any]) -> Any:
        """Return the innermost frame that is the model's own; the first is the innermost."""
        return own_frame(frames)

    @staticmethod
    def text_of(file: str, line: str | int, function: str) -> str:
        """Return a place as in ` (model.py, line 8, in initialize)`."""
        where = "" if function.startswith("<") else f", in {function}"
        return f" ({file.rpartition('/')[2]}, line {line}{where})"

    @staticmethod
    def all_in(lines: Iterable[str]) -> Iterator[list[Frame]]:
        """Yield the frames of each thread, the innermost first."""
        frames: list[Frame] = []
        for line in lines:
            if _STACK.match(line):
                yield frames
                frames = []
            elif match := _FRAME.match(line):
                frames.append(Frame(*match.groups()))
        yield frames


def find_place(lines: Iterable[str]) -> str:
    """Return the place as in ` (model.py, line 8, in execute)`; "" if no thread is in the model.

    If the model waits in a library, the place is the line of the model that has called it.
    """
    for stack in Frame.all_in(lines):
        frames = _frames_of_model(stack)
        if frames:
            return Frame.text_of(*Frame.own_of(frames[::-1]))
    return ""


def _frames_of_model(stack: Sequence[Frame]) -> list[Frame]:
    """Return the frames of a model's code and of what it has called, the outermost first."""
    calls = [number for number, frame in enumerate(stack) if frame.file.endswith(_CALLER)]
    if not calls:
        return []
    frames: list[Frame] = []
    for frame in reversed(stack[: calls[0]]):
        if _OURS in frame.file:
            break
        if frames or not _BETWEEN.match(frame.file):
            frames.append(frame)
    return frames
