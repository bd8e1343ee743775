"""Runs the programs that make environments: uv, and what an archive brings along to adapt itself.

Their latest line shows how far they are. All lines are in the verbose log, the last ones in an
error: nobody needs them while all is well.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from zmqtriton.long_steps import Reporter, StepProgress
from zmqtriton_floor import prctl
from zmqtriton_floor.errors import InternalError

_LAST_LINES = 12
#: pip writes it for each attempt; the latest says why.
_RETRY = "WARNING: Retrying "
#: How uv and pip say that nobody answers, or that nobody may be asked.
_UNREACHABLE = re.compile(
    r"error sending request|connection broken by|network (?:connectivity is|was) disabled", re.I
)


def find_uv() -> str | None:
    """Find uv beside the server's interpreter or on PATH.

    `pip install zmqtriton[env]` puts it beside the interpreter.
    """
    return shutil.which("uv", path=os.path.dirname(sys.executable)) or shutil.which("uv")


def run(
    command: Sequence[str],
    what: str,
    reporter: Reporter,
    *,
    directory: str | None = None,
    variables: Mapping[str, str] | None = None,
    within_s: float | None = None,
) -> None:
    """Run a program. Raises InternalError: `what` failed, and the program's last lines."""
    last: deque[str] = deque(maxlen=_LAST_LINES)
    reading, writing = os.pipe()
    reporter.progress(StepProgress(what))
    listener = threading.Thread(
        target=_forward_lines, args=(reading, last, what, reporter), daemon=True
    )
    listener.start()
    status = 1
    try:
        status = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            cwd=directory,
            env=variables,
            timeout=within_s,
            check=False,
            # otherwise it would go on when this process is killed
            preexec_fn=prctl.die_with_parent,
        ).returncode
    except OSError as error:
        last.append(f"{command[0]}: {error.strerror}")
    except subprocess.TimeoutExpired:
        last.append(f"it took more than {within_s:g} s")
    finally:
        os.close(writing)
        # what it has started may hold the other end open for ever
        listener.join(5)
    if status:
        raise InternalError(f"{what} failed: " + "\n".join(last))


def install_with_uv(
    uv: str, arguments: Sequence[str], what: str, reporter: Reporter, **more: Any
) -> None:
    """Run `uv pip install`; from uv's cache alone where no index can be reached.

    Raises InternalError like run(), with the first reason.
    """
    try:
        run([uv, "pip", "install", *arguments], what, reporter, **more)
    except InternalError as error:
        if not is_unreachable(error.text):
            raise
        reporter.log("W", "no package index can be reached; uv tries again with what it has cached")
        try:
            run([uv, "pip", "install", "--offline", *arguments], what, reporter, **more)
        except InternalError:
            raise error from None


def is_unreachable(reason: str) -> bool:
    """Return True if a program has failed because it reached no package index."""
    return _UNREACHABLE.search(reason) is not None


def _forward_lines(reading: int, last: deque[str], what: str, reporter: Reporter) -> None:
    with open(reading, errors="replace") as lines:
        for line in lines:
            text = line.rstrip()
            if text:
                if last and text.startswith(_RETRY) and last[-1].startswith(_RETRY):
                    last.pop()
                last.append(text)
                reporter.log("V", text)
                reporter.progress(StepProgress(f"{what}: {text}"))
