"""The page on command lines: the table of options, and the help of all commands."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import click

from tools.commands import (
    click_arguments,
    click_commands,
    click_options,
    help_of,
    server_commands,
)
from tools.reference.markdown import block, code, heading, prose, table
from zmqtriton.addons import verbs
from zmqtriton.ctl.main import cli
from zmqtriton.options.help import default_of
from zmqtriton.options.kinds import Arity, KnownOption
from zmqtriton.options.table import OPTION_GROUPS

_ABOUT = """\
`zmqtriton` and `tritonserver` are two names of one command, which starts a server: `zmqtriton
--model-repository=DIRECTORY [options]`. An option is written `--name=value` or `--name value`.
`--help` prints the same."""
_WITHOUT_EFFECT = """\
Options of Triton for work that this server does in another way. It accepts them, so that a command
line of Triton needs no change, and logs a warning."""
_CTL = """\
[zmqtriton-ctl](../ctl.md) shows and commands servers that run. The exit status is 0 for
success, 1 if the server refuses, 2 if there is no server or the usage is wrong. These options stand
before or behind a command:"""


def page() -> Iterator[str]:
    yield from heading("Command lines", _ABOUT, "the table of options and the help of the commands")
    yield from ("## Options of the server", "")
    for group, options in OPTION_GROUPS.items():
        supported = [one for one in options if not one.reason]
        if supported:
            yield from (f"### {group}", "")
            yield from table(("Option", "Default", "Meaning"), map(_row, supported))
    yield from ("### Accepted without effect", "", _WITHOUT_EFFECT, "")
    ignored = [one for options in OPTION_GROUPS.values() for one in options if one.reason]
    rows = [(f"`--{one.name}`", prose(one.help), prose(one.reason)) for one in ignored]
    yield from table(("Option", "In Triton", "Here"), rows)
    yield from ("## Other commands", "")
    for name, arguments, about in server_commands():
        yield from (f"### zmqtriton {name}", "", f"`zmqtriton {name} {arguments}`: {about}.", "")
        yield from block(help_of(name))
    yield from ("## zmqtriton-ctl", "", _CTL, "")
    yield from _options(click_options(cli))
    yield from table(("Group", "Commands"), _groups())
    for words, command in click_commands(cli):
        usage = " ".join([*words, *click_arguments(command)])
        yield from (f"### {' '.join(words)}", "", f"`zmqtriton-ctl {usage}`", "")
        yield from _paragraphs(command.help)
        yield from _options(click_options(command))


def _groups() -> Iterator[tuple[str, str]]:
    names = cli.list_commands(click.Context(cli))
    for group, of_group in groupby(names, verbs().__getitem__):
        yield group, ", ".join(f"[`{name}`](#{name})" for name in of_group)


def _row(option: KnownOption) -> tuple[str, str, str]:
    value = "" if option.arity is Arity.SWITCH else f"={option.metavar}"
    return f"`--{option.name}{value}`", code(default_of(option)), prose(option.help)


def _options(options: Iterator[tuple[str, str]]) -> Iterator[str]:
    rows = [(code(names), prose(about)) for names, about in options]
    if rows:
        yield from table(("Option", "Meaning"), rows)


def _paragraphs(text: str | None) -> Iterator[str]:
    """Return the lines of a command's help; a block that click prints unchanged stays so."""
    for paragraph in (text or "").strip().split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield from block(paragraph.removeprefix("\b\n"))
        else:
            yield from (prose(" ".join(paragraph.split())), "")
