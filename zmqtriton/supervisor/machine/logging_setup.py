"""Sets up the supervisor's own log; called once, before anything is logged."""

from __future__ import annotations

import os
import sys
from typing import IO

from zmqtriton.options import Options
from zmqtriton_floor import logs

#: The supervisor reports on all models, of which there may be many. Of failures, which clients
#: can cause as often as they like, it tells as many as other processes.
_LINES_A_SECOND = 1000


def open_log(path: str, flags: int) -> int:
    """Open a log file; a new one is not for everybody to read, whatever the umask."""
    return os.open(path, flags, 0o640)


def log_options(options: Options) -> logs.LogOptions:
    """Return which records are written, and how."""
    return logs.LogOptions(
        options.log_format,
        options.log_verbose,
        options.log_info,
        options.log_warning,
        options.log_error,
    )


def set_up(options: Options) -> IO[str]:
    """Set up logging and return the stream. Raises OSError if the log file cannot be opened."""
    stream = sys.stderr
    if options.log_file:
        try:
            stream = open(options.log_file, "a", encoding="utf-8", opener=open_log)  # noqa: SIM115
        except OSError as error:
            raise OSError(
                f"cannot open the log file '{options.log_file}': {error.strerror}"
            ) from error
    logs.configure(log_options(options), stream, _LINES_A_SECOND)
    return stream
