"""Finds where in the model a crash happened, from what Python writes about its own crash.

Used for the last lines of a stub's output.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from zmqtriton.addons import OWN_PACKAGE

#: The line with which Python begins its report of a crash.
FATAL_PREFIX = "Fatal Python error: "
_STACK = re.compile(r"(Current thread|Stack) .*\(most recent call first\):")
_FRAME = re.compile(r'File "(.+)", line (\d+) in (.+)')
#: How many outer frames are shown before the frame that crashed.
_MAX_OUTER_FRAMES = 2
#: Frames below one of these run every model, or are those of our backends, and are left out.
_OWN_PATHS = ("/zmqtriton_stub/", f"/{OWN_PACKAGE}/")
#: Frames of the import system say nothing about the model.
_IMPORT = ("<frozen importlib", "/importlib/__init__.py")


def find_crash(lines: Sequence[str]) -> str:
    """Return the last crash in these lines and where in the model it happened; or ""."""
    fatal = [n for n, line in enumerate(lines) if line.startswith(FATAL_PREFIX)]
    if not fatal:
        return ""
    report = lines[fatal[-1] :]
    stacks = [n for n, line in enumerate(report) if _STACK.match(line)]
    frames: list[str] = []
    for line in report[stacks[0] + 1 :] if stacks else ():
        frame = _FRAME.match(line)
        is_ours = frame is not None and any(path in frame[1] for path in _OWN_PATHS)
        if frame is None or (is_ours and frames):
            break
        # A crash within pb_utils is shown where the model has called it.
        if not (is_ours or frame[1].startswith(_IMPORT[0]) or frame[1].endswith(_IMPORT[1])):
            frames.append("{}({}): {}".format(*frame.groups()))
    told_of = report[0].removeprefix(FATAL_PREFIX)
    if not frames:
        return told_of
    shown = frames[:1] + frames[1:][-_MAX_OUTER_FRAMES:]
    return "\n".join([f"{told_of}\n\nAt:", *(f"  {frame}" for frame in shown)])
