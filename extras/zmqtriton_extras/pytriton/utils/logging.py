"""Loggers of other packages."""

from __future__ import annotations

import logging

_TALKATIVE = ("sh.command", "sh.stream_bufferer", "sh.streamreader")


def silence_3rd_party_loggers() -> None:
    """Keep the debug messages of `sh`, a line for each piece of output, out of the log."""
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
