"""Run `zmqtriton` or `tritonserver`, with the subcommands: new, run, demo, check and others.

Returns the exit status; where the server has run, the process ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from zmqtriton import addons, file_names, standard_output
from zmqtriton.command_line import read_options

try:
    from zmqtriton_floor import lazy_names, prctl
except ImportError as error:  # the text says what this Python lacks
    sys.exit(f"error: {error}")

#: Word after the image in `docker run IMAGE tritonserver --model-repository=…` and in KServe's
#: runtime. Triton's image starts no program by itself; ours starts this one, which skips the word.
_PROGRAM = "tritonserver"


def main(arguments: list[str] | None = None) -> int:
    standard_output.open_closed()
    if arguments is None:
        file_names.read_as_utf8()
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == [_PROGRAM]:
        words = words[1:]
    if words and not words[0].startswith("-"):
        reference = addons.find("commands", words[0])
        if reference:
            return _run(lazy_names.load_reference(reference), words[1:])
    options = read_options(words)
    if isinstance(options, int):
        return options
    # only now: a command that prints an error need not load the server
    from zmqtriton.supervisor.service import run

    prctl.end(run(options))


def _run(command: Callable[[list[str]], int], words: list[str]) -> int:
    """Run a command; `| head`, which has enough of its output, is no error."""
    standard_output.escape_unencodable()
    try:
        status = command(words)
        sys.stdout.flush()
    except BrokenPipeError:
        if not standard_output.is_unread():
            raise
        standard_output.discard()
        return 1
    return status
