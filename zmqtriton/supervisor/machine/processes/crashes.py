"""What Python writes of its own crash, read for where in the model that was.

Asked by output.py about the last lines of a stub.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

#: Where Python writes the stacks of a process that crashes, its own way of writing them.
_FATAL_PREFIX = "Fatal Python error: "
_STACK = re.compile(r"(Current thread|Stack) .*\(most recent call first\):")
_FRAME = re.compile(r'File "(.+)", line (\d+) in (.+)')
#: Of the frames that the model's code has called; in front of them is the one that crashed.
_MAX_OUTER_FRAMES = 2
#: Below these frames there is only what runs every model.
_STUB_PATH = "/zmqtriton_stub/"
#: What imports it tells nothing of it.
_IMPORT = ("<frozen importlib", "/importlib/__init__.py")


def find_crash(lines: Sequence[str]) -> str:
    """The last crash that these lines tell of, and where in the model it was; or ""."""
    fatal = [n for n, line in enumerate(lines) if line.startswith(_FATAL_PREFIX)]
    if not fatal:
        return ""
    told = lines[fatal[-1] :]
    stacks = [n for n, line in enumerate(told) if _STACK.match(line)]
    frames = []
    for line in told[stacks[0] + 1 :] if stacks else ():
        frame = _FRAME.match(line)
        if frame is None or _STUB_PATH in frame[1]:
            break
        if not (frame[1].startswith(_IMPORT[0]) or frame[1].endswith(_IMPORT[1])):
            frames.append("{}({}): {}".format(*frame.groups()))
    told_of = told[0].removeprefix(_FATAL_PREFIX)
    if not frames:
        return told_of
    shown = frames[:1] + frames[1:][-_MAX_OUTER_FRAMES:]
    return "\n".join([f"{told_of}\n\nAt:", *(f"  {frame}" for frame in shown)])
