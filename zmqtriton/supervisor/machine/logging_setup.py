"""Where the supervisor's own records go, and which; called once, before anything is logged."""

from __future__ import annotations

import sys
from typing import IO

from zmqtriton.options import Options
from zmqtriton_floor import logs

#: What it says of all models comes from one place, and there may be many of them.
_LINES_A_SECOND = 1000


def set_up(options: Options) -> IO[str]:
    """The stream. Raises OSError where the log file cannot be opened."""
    stream = sys.stderr
    if options.log_file:
        try:
            stream = open(options.log_file, "a", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise OSError(
                f"cannot open the log file '{options.log_file}': {error.strerror}"
            ) from error
    logs.configure(logs.LogOptions.of(vars(options)), stream, _LINES_A_SECOND)
    return stream
