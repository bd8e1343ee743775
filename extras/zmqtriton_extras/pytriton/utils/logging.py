"""The loggers of packages that write too much, which are silenced."""

from __future__ import annotations

import logging

_TALKATIVE = ("sh.command", "sh.stream_bufferer", "sh.streamreader")


def silence_3rd_party_loggers() -> None:
    """Keep debug messages of `sh` out of the log: it writes one for each piece of output."""
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
