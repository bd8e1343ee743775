"""The commands as the manual and the reference show them: names, arguments and help."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from unittest import mock

import click

from zmqtriton import addons
from zmqtriton.main import main

_USAGE = re.compile(r"(\S+) (.*?)  +(.*)")


def server_commands() -> Iterator[tuple[str, str, str]]:
    """Return name, arguments and purpose of each subcommand of `zmqtriton`."""
    for usage in addons.usages().values():
        match = _USAGE.fullmatch(usage)
        assert match is not None, usage
        name, arguments, about = match.groups()
        yield name, arguments, about


def help_of(*words: str) -> str:
    """Return the output of `zmqtriton WORDS --help` on a terminal of 80 columns."""
    printed = io.StringIO()
    with (
        mock.patch.dict(os.environ, {"COLUMNS": "80", "NO_COLOR": "1"}),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        main([*words, "--help"])
    return printed.getvalue().strip()


def click_commands(
    group: click.Group, before: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Return the words and the command of all visible commands, groups before their commands."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        yield (*before, name), command
        if isinstance(command, click.Group):
            yield from click_commands(command, (*before, name))


def click_arguments(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        if not isinstance(parameter, click.Argument):
            continue
        if parameter.metavar is not None:
            yield parameter.metavar
        else:
            name = parameter.human_readable_name + ("..." if parameter.nargs == -1 else "")
            yield name if parameter.required else f"[{name}]"


def click_options(command: click.Command) -> Iterator[tuple[str, str]]:
    """Return each option as it is written, and its help."""
    context = click.Context(command)
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record is not None:
            yield record
