"""Run `zmqtriton` or `tritonserver`, with the subcommands: new, demo, example, check and others.

Returns the exit status.
"""

from __future__ import annotations

import sys

from zmqtriton.command_line import read_options


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["new"]:
        from zmqtriton.new_model.command import run_new

        return run_new(words[1:])
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
    if words[:1] == ["token"]:
        from zmqtriton.token_command import run_token

        return run_token(words[1:])
    options = read_options(words)
    if isinstance(options, int):
        return options
    # only now: a command that prints an error need not load the server
    from zmqtriton.supervisor.service import run

    return run(options)
