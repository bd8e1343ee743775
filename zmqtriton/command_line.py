"""Reads the options of a server from its command line, its file of options and its environment.

Wrong options are reported on stderr, in Triton's words.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from zmqtriton import addons
from zmqtriton.options import (
    OPENTELEMETRY,
    HelpRequested,
    OptionError,
    Options,
    parse,
    with_environment,
)
from zmqtriton.store_places import is_remote

_FIRST_STEPS = (
    "Try 'zmqtriton demo' for a first look, 'zmqtriton new NAME' for a model of your own, "
    "'zmqtriton --help' for all options.\n"
)


def read_options(words: list[str], usual: Sequence[str] = ()) -> Options | int:
    """Return the options, or an exit status; `usual` has words for options that are not set."""
    try:
        options = with_environment(parse_words(words, usual=usual), os.environ)
        _check_exporter(options)
        options = _check_add_ons(options)
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


def _check_add_ons(options: Options) -> Options:
    """Return the options without metrics, which are on by default, if their add-on is missing.

    Raises OptionError for another option whose add-on is not installed.
    """
    options_by_add_on = {
        "on_demand": (options.load_on_demand and "--load-on-demand")
        or (options.one_by_one and "--one-by-one"),
        "tracing": options.trace.can_trace and "--trace-config",
        "storage": any(map(is_remote, options.model_repository)) and "--model-repository",
    }
    present = addons.add_ons()
    for name, option in options_by_add_on.items():
        if option and name not in present:
            raise OptionError(
                f"Bad option: \"{option}\".\nIt needs the add-on '{name}'; install zmqtriton with "
                "it, or leave out the option."
            )
    return options if "metrics" in present else replace(options, allow_metrics=False)


def _check_exporter(options: Options) -> None:
    """Raise OptionError if the collector for traces can never be reached."""
    if options.trace.mode == OPENTELEMETRY:
        # only now, since it costs memory
        from zmqtriton.otlp_destination import Destination, DestinationError

        try:
            Destination.read(options.trace.opentelemetry, os.environ)
        except DestinationError as error:
            raise OptionError(str(error)) from None
