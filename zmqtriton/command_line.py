"""Reads the options of a server from its command line, its file of options and its environment.

Wrong options are reported on stderr, in Triton's words.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from zmqtriton.options import (
    OPENTELEMETRY,
    HelpRequested,
    OptionError,
    Options,
    parse,
    with_environment,
)

_FIRST_STEPS = (
    "Try 'zmqtriton demo' for a first look, 'zmqtriton new NAME' for a model of your own, "
    "'zmqtriton --help' for all options.\n"
)


def read_options(words: list[str], usual: Sequence[str] = ()) -> Options | int:
    """Return the options, or the status to exit with; `usual` count if no place has the option."""
    try:
        options = with_environment(parse_words(words, usual=usual), os.environ)
        _check_exporter(options)
    except HelpRequested as request:
        sys.stdout.write(f"{request}\n")
        return 0
    except OptionError as error:
        sys.stderr.write(f"{error}\n{'' if words else _FIRST_STEPS}")
        return 1
    for warning in options.warnings:
        sys.stderr.write(f"{warning}\n")
    return options


def parse_words(
    words: list[str], *, takes_directories: bool = False, usual: Sequence[str] = ()
) -> Options:
    """Return the options of a server that is started with these words here.

    Raises OptionError and HelpRequested.
    """
    return parse(
        words,
        takes_directories=takes_directories,
        environment=os.environ,
        read_file=lambda path: Path(path).read_text("utf-8"),
        usual=usual,
    )


def _check_exporter(options: Options) -> None:
    """Raise OptionError if traces are to be sent where they never can be."""
    if options.trace.mode == OPENTELEMETRY:
        # only now, since it costs memory
        from zmqtriton.tracing import destination

        try:
            destination.read(options.trace.opentelemetry, os.environ)
        except destination.DestinationError as error:
            raise OptionError(str(error)) from None
