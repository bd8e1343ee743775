"""The supervisor's own process: its name, its orphans, its limits and its signals."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from zmqtriton import systemd
from zmqtriton.host import capacity, fitness
from zmqtriton.logs.log import ServerLog
from zmqtriton.options import Options
from zmqtriton.start import checks
from zmqtriton.supervisor.core import SupervisorCore
from zmqtriton.supervisor.settings import Start
from zmqtriton_floor import prctl

_log = logging.getLogger(__name__)

# None of the signals that end a process by default ends this one without a word, but those of a
# crash, which are left to the kernel.
#: Signals from a person or a service manager; the second one ends the server at once.
_STOP = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGQUIT})
#: Signals from the kernel or a machine's manager, perhaps once a second.
_SHORTAGE = frozenset({signal.SIGXCPU, signal.SIGPWR})
#: Python 3.10 has no name for it.
_SIGSTKFLT = 16
_MEANINGLESS = frozenset(
    {
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
        signal.SIGVTALRM,
        signal.SIGPROF,
        signal.SIGIO,
        _SIGSTKFLT,
        *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
    }
)


def set_up(options: Options) -> None:
    """Prepare the supervisor's process. Raises OSError with a text if no server can start here."""
    fitness.check(options)
    checks.check_numbers(options)
    _restore_inheritance()
    fitness.raise_file_size()
    prctl.set_name("zmqtriton")
    prctl.hide_memory()
    prctl.adopt_orphans()
    capacity.raise_descriptor_limit()


def _restore_inheritance() -> None:
    """Undo what a parent has ignored, blocked or masked, also for all children.

    Otherwise children could not be awaited, or not ended, or directories were closed to their
    owner.
    """
    os.umask(os.umask(0o077) & 0o077)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def warn(options: Options) -> None:
    """Log the deficiencies of this machine despite which a server can start."""
    for lack in fitness.lacks(options):
        _log.warning("%s", lack.text)


def start(options: Options) -> Start:
    """Return the command line and environment of this process."""
    once = ("--take-over", "--one-by-one")
    words = [word for word in sys.argv[1:] if not word.startswith(once)]
    program = [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]]
    if words[:1] == ["tritonserver"]:
        program.append(words.pop(0))
    obstacle = ""
    if options.owner_descriptor >= 0 or (words and words[0].isidentifier()):
        obstacle = "it belongs to the program that has started it, and ends with that"
    elif os.getpid() == 1:
        obstacle = "it is the first process of its container, which would end with it"
    if obstacle:
        obstacle = f"the server cannot be replaced: {obstacle}"
    with suppress(OSError):
        return Start(
            program,
            words,
            os.getcwd(),
            dict(os.environ),
            os.getpid(),
            obstacle,
            systemd.invocation(os.environ),
            systemd.reload_words(Path("/proc/self/cgroup").read_text("utf-8")),
            program[1] if len(program) == 2 and _begins_with(program[1], sys.orig_argv[0]) else "",
        )
    return Start(obstacle="the server cannot be replaced: its working directory is gone")


def _begins_with(script: str, python: str) -> bool:
    """Return whether a script's first line names this Python."""
    try:
        with open(script, "rb") as file:
            return os.access(script, os.X_OK) and file.readline(4096) == f"#!{python}\n".encode()
    except OSError:
        return False


class Signals:
    """The signals that this process receives, in a socket that the loop watches."""

    def __init__(self, core: SupervisorCore, log: ServerLog, *, has_log_file: bool) -> None:
        self._core = core
        self._log = log
        #: True if SIGHUP cannot be about a log file, and so tells that a terminal is closed.
        self._has_terminal_alone = not has_log_file
        self._reader, self._writer = socket.socketpair()
        #: The signals that are logged once.
        self._logged: set[int] = set()

    def fileno(self) -> int:
        """Return the descriptor that is readable when `handle` has work to do."""
        return self._reader.fileno()

    def catch(self) -> None:
        """Catch the signals from now on."""
        for end in (self._reader, self._writer):
            end.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        # nohup ignores it
        is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        is_in_foreground = _foreground_group() == os.getpgrp()
        self._has_terminal_alone &= is_in_foreground and not is_ignored
        for number in {signal.SIGHUP} | _STOP | _SHORTAGE | _MEANINGLESS:
            # not SIG_IGN, which children would inherit
            signal.signal(number, lambda number, frame: None)

    def handle(self) -> None:
        """Act on the signals that have come."""
        for number in self._reader.recv(64):
            if number == signal.SIGHUP and self._has_terminal_alone and not _foreground_group():
                _log.info("The terminal is closed: the server stops")
                # both the kernel and a shell tell of it; a second stop would end all at once
                self._has_terminal_alone = False
                self._core.stop_requested()
            elif number == signal.SIGHUP:
                self._log.reopen()
            elif number in _STOP:
                _log.info("%s has come: the server stops", _name(number))
                self._core.stop_requested()
            elif number not in self._logged:
                self._logged.add(number)
                if number in _SHORTAGE:
                    _log.warning("%s has come: the server stops", _name(number))
                    self._core.stop_requested()
                else:
                    _log.warning("%s means nothing to the server and is ignored", _name(number))

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        for end in (self._reader, self._writer):
            end.close()


def _foreground_group() -> int:
    """Return the processes that keys of this one's terminal reach, such as Ctrl-C.

    0 without a terminal: the kernel removes a closed one.
    """
    with suppress(OSError):
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            return os.tcgetpgrp(terminal)
        finally:
            os.close(terminal)
    return 0


def _name(number: int) -> str:
    if number == _SIGSTKFLT:
        return "SIGSTKFLT"
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
