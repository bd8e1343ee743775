"""The Logger of models. Its lines go to the supervisor with the model's own file and line."""

from __future__ import annotations

import enum
import os
import sys
import time

from zmqtriton_floor import logs
from zmqtriton_stub import instance


class Level(enum.Enum):
    """Log levels; the values are the letters of Triton's log lines."""

    INFO = "I"
    WARNING = "W"
    ERROR = "E"
    VERBOSE = "V"

    def __int__(self) -> int:
        """Return Triton's number."""
        return "IWEV".index(self.value)


class Logger:
    """Sends every line; the server's settings, which may change, decide which ones are printed."""

    LogLevel = Level
    INFO = Level.INFO
    WARNING = Level.WARNING
    ERROR = Level.ERROR
    VERBOSE = Level.VERBOSE

    @staticmethod
    def log(message: str, level: Level = Level.INFO) -> None:
        """Log a line; Logger.INFO, WARNING, ERROR or VERBOSE."""
        if not isinstance(level, Level):
            raise TypeError(f"level must be one of pb_utils.Logger's, got {type(level)}")
        _say(level, message)

    @staticmethod
    def log_info(message: str) -> None:
        """Log a line of level info."""
        _say(Level.INFO, message)

    @staticmethod
    def log_warn(message: str) -> None:
        """Log a warning."""
        _say(Level.WARNING, message)

    @staticmethod
    def log_error(message: str) -> None:
        """Log an error of the model."""
        _say(Level.ERROR, message)

    @staticmethod
    def log_verbose(message: str) -> None:
        """Log a line for `--log-verbose=1` and above."""
        _say(Level.VERBOSE, message)


def _say(level: Level, message: str) -> None:
    if not isinstance(message, str):
        raise TypeError(f"message must be a str, got {type(message)}")
    here = instance.here()
    if here is not None:
        here.log(level.value, message, 3)
        return
    frame = sys._getframe(2)
    origin = (os.getpid(), os.path.basename(frame.f_code.co_filename), frame.f_lineno)
    sys.stderr.write(logs.line(level.value, origin, message, time.time()) + "\n")
