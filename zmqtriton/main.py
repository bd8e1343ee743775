"""The commands `zmqtriton` and `tritonserver`: a server, a demo, an example, and so on.

Returns the exit status. Options that are wrong are said on stderr, in Triton's words.
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

_FIRST_STEPS = "Try 'zmqtriton demo' for a first look, 'zmqtriton --help' for all options.\n"


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["demo"]:
        from zmqtriton.demo import run_demo

        return run_demo(words[1:])
    if words[:1] == ["example"]:
        from zmqtriton.examples import run_example

        return run_example(words[1:])
    if words[:1] == ["simulate"]:
        from zmqtriton.simulation.command import run_simulate

        return run_simulate(words[1:])
    if words[:1] == ["check"]:
        from zmqtriton.checking.command import run_check

        return run_check(words[1:])
    options = read_options(words)
    if isinstance(options, int):
        return options
    # Not before: what only prints an error need not load the server.
    from zmqtriton.supervisor.service import run

    return run(options)


def read_options(words: list[str]) -> Options | int:
    """The options, or the status to exit with."""
    try:
        options = with_environment(parse(words), os.environ)
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
    """Raises OptionError where traces are to go where they never can."""
    if options.trace.mode == OPENTELEMETRY:
        # Not before, since it costs memory.
        from zmqtriton.tracing import destination

        try:
            destination.read(options.trace.opentelemetry, os.environ)
        except destination.DestinationError as error:
            raise OptionError(str(error)) from None
