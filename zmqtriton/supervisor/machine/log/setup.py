"""Sets up the supervisor's own log; called once, before anything is logged."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Callable

from zmqtriton.options import Options
from zmqtriton.supervisor.machine.guard import guarded
from zmqtriton.supervisor.machine.log.outlet import LogOutlet
from zmqtriton_floor import logs

#: The supervisor reports on all models, of which there may be many. Of failures and calls, which
#: clients can cause as often as they like, it tells as many as other processes.
_LINES_A_SECOND = 1000


def log_options(options: Options) -> logs.LogOptions:
    """Return which records are written, and how."""
    return logs.LogOptions(
        options.log_format,
        options.log_verbose,
        options.log_info,
        options.log_warning,
        options.log_error,
    )


def take_over_output() -> LogOutlet:
    """Have all that Python prints in this process go through threads, and return the way to stderr.

    Whoever reads stdout or stderr may be the same, or may stop to read.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    to_stderr = to_stdout = _outlet(2)
    if not os.path.sameopenfile(1, 2):
        to_stdout = _outlet(1)
    sys.stdout, sys.stderr = to_stdout, to_stderr
    return to_stderr


def _outlet(descriptor: int, complain: Callable[[str], object] = lambda text: None) -> LogOutlet:
    outlet = LogOutlet(descriptor, complain)
    atexit.register(_finish, outlet)
    return outlet


def _finish(outlet: LogOutlet) -> None:
    logging.shutdown()  # its handlers may have something to write
    outlet.finish()


class ServerLog:
    """The log of the server's processes: where it goes."""

    def __init__(self, options: Options, to_stderr: LogOutlet) -> None:
        """Open the log. Raises OSError if there is a log file that cannot be opened."""
        self._path = options.log_file
        #: For whom a terminal's width, or the loss of lines, matters.
        self.outlet = to_stderr
        if self._path:
            try:
                descriptor = _open_log(self._path)
            except OSError as error:
                raise OSError(
                    f"cannot open the log file '{self._path}': {error.strerror}"
                ) from error
            self.outlet = _outlet(descriptor, to_stderr.write)
        logs.configure(log_options(options), self.outlet, _LINES_A_SECOND)

    def reopen(self) -> None:
        """Open the log file anew, if there is one: it may have been renamed."""
        if self._path:
            self.outlet.run_between(self._reopen)

    def _reopen(self) -> None:
        with guarded("to open the log file anew"):
            opened = _open_log(self._path)
            os.dup2(opened, self.outlet.fileno(), inheritable=False)
            os.close(opened)


def _open_log(path: str) -> int:
    """Open a log file; a new one is not for everybody to read, whatever the umask."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
