"""A machine of the table: how it is made, and what a server does there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.server import Server

#: Namespaces of one's own: mounts, and processes, which end with the first of them.
_NAMESPACES = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
#: The machine's own places for files; what it has on top of them follows.
_PLACES = """
mount -t tmpfs -o mode=1777 machine "$PLACE"
mount -t tmpfs machine /run
mount -t tmpfs -o mode=1777 machine /dev/shm
"""


def _nothing(server: Server) -> None:
    """Leave the server as it is."""


@dataclass(frozen=True)
class Machine:
    """One machine; `make faults OF=machines` runs the drive in it, as root of its namespaces."""

    name: str
    #: As the page has it.
    text: str
    #: What the server says in place of starting, a regular expression; "" if it works.
    sentence: str = ""
    #: The sentence on the page, for one that is told.
    shown: str = ""
    #: Commands of a shell before all else; $PLACE is the machine's own directory.
    enter: str = ""
    #: Commands of the shell after all else.
    leave: str = ""
    #: More namespaces, as unshare(1) has them.
    namespaces: tuple[str, ...] = ()
    #: A program and its arguments that starts the server and its commands.
    wrapper: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    #: The address under which the server is asked.
    host: str = "127.0.0.1"
    #: The name of the model that is asked.
    model: str = "identity_fp32"
    #: Its server's directory, within the machine's own.
    directory: str = "s"
    #: Makes the Python of the server, where that is not the one of the tests.
    python: Callable[[], Path] | None = None
    prepare: Callable[[Server], None] = _nothing
    #: Changes a model before it is reloaded, where that is not a line more of its code.
    change: Callable[[Server], None] | None = None
    #: Begins what the end meets.
    before_end: Callable[[Server], None] = _nothing
    #: After SIGTERM the server has so long; 0: as long as it takes.
    grace_s: float = 0.0
    #: Why this machine cannot be made here; "" if it can.
    missing: Callable[[], str] = lambda: ""

    def command(self, place: Path, words: Sequence[str]) -> list[str]:
        """Return the command line that runs these words in the machine."""
        user = ["--user", "--map-root-user"] if os.geteuid() else []
        # not exec: the first process of the machine is one that takes orphans
        script = f'{_PLACES}{self.enter}\n"$@" && status=0 || status=$?\n{self.leave}\nexit $status'
        shell = ["env", f"PLACE={place}", "sh", "-ec", script, "sh"]
        return ["unshare", *user, *_NAMESPACES, *self.namespaces, *shell, *words]

    def is_said_in(self, log: str) -> bool:
        return bool(self.sentence) and re.search(self.sentence, log) is not None


def why_none() -> str:
    """Why no machine can be made here; "" if some can."""
    for tool, package in (("unshare", "util-linux"), ("mount", "mount"), ("env", "coreutils")):
        if shutil.which(tool) is None:
            return f"{tool} is missing (Debian's package {package})"
    tried = subprocess.run(
        Machine("", "").command(Path("/mnt"), ["true"]), capture_output=True, text=True, check=False
    )
    return f"no namespaces are to be had: {tried.stderr.strip()}" if tried.returncode else ""


def needs_root() -> str:
    """Why root's privileges outside of namespaces are not there; "" if they are."""
    return "only root can" if os.geteuid() else ""


def needs(*tools: str) -> Callable[[], str]:
    """Return the reason that a machine is left out which needs these programs."""

    def missing() -> str:
        return next((f"{tool} is missing" for tool in tools if not shutil.which(tool)), "")

    return missing


def python_as(number: int) -> str:
    """Why a user with this number cannot run this Python; "" if it can."""
    if reason := needs_root() or needs("setpriv")():
        return reason
    words = [*as_user(number), sys.executable, "-c", "import zmqtriton"]
    tried = subprocess.run(words, capture_output=True, cwd="/", check=False)
    return f"user {number} may not read {sys.executable}" if tried.returncode else ""


def as_user(number: int) -> tuple[str, ...]:
    """Return the beginning of a command line for a user who has no name and no privileges."""
    numbers = (f"--reuid={number}", f"--regid={number}", "--clear-groups")
    return ("setpriv", *numbers, "--inh-caps=-all", "--bounding-set=-all")
