"""Finds interpreters and asks them about themselves; runs programs that make environments.

Runs in the child process that prepares environments, or in `zmqtriton-ctl`. The progress of a
program, uv or an archive's own `conda-unpack`, is its latest line. All lines are in the verbose
log, the last ones in an error.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from zmqtriton.sdk.models import Environment
from zmqtriton.sdk.process import StepProgress, prctl
from zmqtriton.sdk.wire import InternalError, Kind
from zmqtriton_standard.environments.reports import Reporter

_PROBE_PROGRAM = os.path.join(
    os.path.dirname(os.path.dirname(prctl.__file__)), "zmqtriton_stub", "probe.py"
)
_OUTPUT_MARK = "zmqtriton-probe "
#: Seconds for an interpreter to report itself: enough for a cold disk; one that hangs is killed.
_TIMEOUT_S = 60
_MIN_VERSION = (3, 8)
#: Lines of a Python that could not start which do not contain the reason.
_SAYS_NOTHING = re.compile(r"\s*$|Current thread 0x|  <no Python frame>")
_VERSIONED_NAME = re.compile(r"python(3\.[0-9]+)")
_LAST_LINES = 12
#: pip writes it for each attempt; the latest says why.
_RETRY = "WARNING: Retrying "
#: Messages of uv and pip that the package index does not answer, or that they work offline.
_UNREACHABLE = re.compile(
    r"error sending request|connection broken by|network (?:connectivity is|was) disabled", re.I
)


def find_uv() -> str | None:
    """Find uv next to the server's interpreter or on PATH.

    `pip install zmqtriton[env]` puts it next to the interpreter.
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
    """Run a program. Raises InternalError with the failed step `what` and the last output lines."""
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
    """Run `uv pip install`; if no index can be reached, only from uv's cache.

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


class Interpreter(NamedTuple):
    """The facts that an interpreter reports of itself."""

    path: str
    version: tuple[int, ...]
    implementation: str
    abi: str
    platform: str
    #: The file that runs in the end.
    executable: str
    #: Modules that stubs need and it lacks.
    missing_modules: tuple[str, ...]

    @property
    def identity(self) -> str:
        """A text that differs for two interpreters if builds for one may not run on the other."""
        number = ".".join(map(str, self.version))
        return f"{self.implementation}-{number}-{self.abi}-{self.platform}-{self.executable}"


def probe(environment: Environment) -> Interpreter:
    """Ask an interpreter. Raises InternalError if it is of no use."""
    python = environment.python
    try:
        answer = subprocess.run(
            [python, _PROBE_PROGRAM],
            env=environment.variables(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
            preexec_fn=prctl.die_with_parent,
        )
    except OSError as error:
        if error.errno == errno.EACCES:
            problem = f"{error.strerror} for {_user()}"
            raise _useless(python, "cannot be run", problem, is_forbidden=True) from error
        raise _useless(python, "cannot be run", str(error.strerror)) from error
    except subprocess.TimeoutExpired as error:
        raise InternalError(
            f"The interpreter {python} said nothing for {_TIMEOUT_S} s: does it start by hand?"
        ) from error
    said = [line for line in answer.stdout.splitlines() if line.startswith(_OUTPUT_MARK)]
    if answer.returncode or not said:
        lines = [line for line in answer.stderr.splitlines() if not _SAYS_NOTHING.match(line)]
        words = lines[-3:] or [f"status {answer.returncode}"]
        raise _useless(python, "does not work", " / ".join(words))
    facts = json.loads(said[-1][len(_OUTPUT_MARK) :])
    version = tuple(facts["version"])
    if version < _MIN_VERSION:
        number = ".".join(map(str, version))
        raise InternalError(f"{python} is Python {number}; models need Python 3.8 or newer")
    if facts["lacks"] and facts["closed"]:
        problem = f"Permission denied for {_user()} in {' and '.join(facts['closed'])}"
        raise _useless(python, "cannot see its packages", problem, is_forbidden=True)
    return Interpreter(
        python,
        version,
        facts["implementation"],
        facts["abi"],
        facts["platform"],
        facts["executable"],
        tuple(facts["lacks"]),
    )


def _useless(
    python: str, action: str, problem: str, *, is_forbidden: bool = False
) -> InternalError:
    """Return the error about an interpreter that does not work."""
    error = InternalError(f"The interpreter {python} {action}: {problem}")
    if is_forbidden:
        return error.because(
            Kind.INTERPRETER_FORBIDDEN, python=python, action=action, problem=problem
        )
    return error.because(Kind.INTERPRETER_BROKEN, python=python, problem=problem)


def _user() -> str:
    """Return the user of this process in words: models may run as a user of their own."""
    try:
        return f"the user '{pwd.getpwuid(os.geteuid()).pw_name}'"
    except KeyError:
        return f"the user {os.geteuid()}"


def find_interpreter(named: str) -> str:
    """Return the path of an interpreter that may be named like python3.11. Raises InternalError."""
    if "/" in named:
        return named
    tried = []
    for candidate in candidate_paths(named):
        try:
            interpreter = probe(Environment(candidate))
        except InternalError as error:
            tried.append(error.text)  # such as a shim that only complains
            continue
        version = _VERSIONED_NAME.fullmatch(named)
        if version is None or version.group(1) == "{}.{}".format(*interpreter.version):
            return candidate
    raise InternalError("; ".join([not_found_text(named), *tried])).because(
        Kind.INTERPRETER_MISSING, python=named
    )


def not_found_text(named: str) -> str:
    """Return the error text for a name that leads to no interpreter."""
    text = f"PYTHON_EXECUTABLE '{named}': there is no such interpreter on PATH"
    return f"{text}, nor among those of pyenv and uv" if _VERSIONED_NAME.fullmatch(named) else text


def candidate_paths(named: str) -> list[str]:
    """Return programs that the name of an interpreter may mean, without running them."""
    paths = [shutil.which(named, path=folder) for folder in os.get_exec_path()]
    version = _VERSIONED_NAME.fullmatch(named)
    if version is not None:
        pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
        data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
        uv = os.environ.get("UV_PYTHON_INSTALL_DIR") or f"{data}/uv/python"
        number = version.group(1)
        paths += sorted(glob.glob(f"{glob.escape(pyenv)}/versions/{number}.*/bin/python"))
        paths += sorted(glob.glob(f"{glob.escape(uv)}/cpython-{number}.*/bin/python"))
    return list(dict.fromkeys(path for path in paths if path))


def server_interpreter() -> Interpreter:
    return probe(Environment(sys.executable))
