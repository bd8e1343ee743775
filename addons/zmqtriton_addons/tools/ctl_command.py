"""The words of a guide that call `zmqtriton-ctl` from the user's shell."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

_PROGRAM = "zmqtriton-ctl"


def ctl_command() -> str:
    """Return the program's name, or its path where no shell finds it, as after `make run`."""
    if shutil.which(_PROGRAM):
        return _PROGRAM
    path = Path(sys.prefix, "bin", _PROGRAM)
    if not path.exists():
        return f"{shlex.quote(sys.executable)} -m zmqtriton.ctl.main"
    here = Path.cwd()
    shown = os.path.relpath(path, here) if path.is_relative_to(here) else str(path)
    return shlex.quote(shown)
