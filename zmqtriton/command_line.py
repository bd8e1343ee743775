"""Reads the options of a server from its command line and environment.

Wrong options are reported on stderr, in Triton's words.
"""

from __future__ import annotations

import os
import sys

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


def read_options(words: list[str]) -> Options | int:
    """Return the options, or the status to exit with."""
    try:
        options = with_environment(parse(words, environment=os.environ), os.environ)
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


def _check_exporter(options: Options) -> None:
    """Raise OptionError if traces are to be sent where they never can be."""
    if options.trace.mode == OPENTELEMETRY:
        # only now, since it costs memory
        from zmqtriton.tracing import destination

        try:
            destination.read(options.trace.opentelemetry, os.environ)
        except destination.DestinationError as error:
            raise OptionError(str(error)) from None
