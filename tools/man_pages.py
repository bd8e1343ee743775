"""Writes man/: the manual, from the table of options and from the help of zmqtriton-ctl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from tools.commands import click_arguments, click_commands, click_options, server_commands
from zmqtriton.addons import verbs
from zmqtriton.ctl.main import cli
from zmqtriton.options.help import default_text
from zmqtriton.options.kinds import Arity
from zmqtriton.options.table import OPTION_GROUPS
from zmqtriton_floor import __version__

DIRECTORY = Path(__file__).resolve().parent.parent / "man"
_ABOUT = "serves Python models as NVIDIA Triton does"
_CTL = "zmqtriton-ctl"


def pages() -> dict[str, str]:
    """Return the text of each page by the name of its file."""
    return {
        "zmqtriton.1": "\n".join([*_server_page(), ""]),
        "tritonserver.1": ".so man1/zmqtriton.1\n",
        f"{_CTL}.1": "\n".join([*_ctl_page(), ""]),
    }


def _head(name: str, about: str) -> list[str]:
    comment = '.\\" Written by `python -m tools.man_pages`.'
    title = f'.TH {name.upper()} 1 "" "zmqtriton {__version__}" "User Commands"'
    return [comment, title, ".SH NAME", f"{_escaped(name)} \\- {_escaped(about)}"]


def _server_page() -> Iterator[str]:
    yield from _head("zmqtriton", _ABOUT)
    yield from (
        ".SH SYNOPSIS",
        _bold("zmqtriton --model-repository") + r"=\fIdirectory\fR [options]",
    )
    for name, arguments, _ in server_commands():
        yield from (".br", f"{_bold(f'zmqtriton {name}')} {_escaped(arguments)}")
    yield from (".SH DESCRIPTION", "Serves repositories of models over HTTP and gRPC. The options")
    yield from ("are those of Triton's", _bold("tritonserver") + ", which is another name of this")
    yield from ("command, and some of its own.", ".SH COMMANDS")
    for name, arguments, about in server_commands():
        yield from (".TP", f"{_bold(name)} {_escaped(arguments)}", _escaped(about) + ".")
    yield from (".PP", "Each says more with", _bold("--help") + ".", ".SH OPTIONS")
    for group, options in OPTION_GROUPS.items():
        yield f".SS {_escaped(group)}"
        for option in options:
            if option.reason:
                continue
            value = "" if option.arity is Arity.SWITCH else rf"=\fI{_escaped(option.metavar)}\fR"
            yield from (".TP", _bold(f"--{option.name}") + value)
            yield _escaped(option.help + default_text(option))
    yield from (
        ".SH SIGNALS",
        "SIGTERM, SIGINT and SIGQUIT stop the server in order, a second one at once.",
    )
    yield from ("SIGHUP opens the log file anew.", ".SH EXIT STATUS")
    yield from ("0 after an orderly end, 1 if the server could not start or was cut short.",)
    yield from _see_also(_CTL)


def _ctl_page() -> Iterator[str]:
    yield from _head(_CTL, "looks at servers of zmqtriton and controls them")
    yield from (".SH SYNOPSIS", rf"{_bold(_CTL)} [options] \fIcommand\fR [arguments]")
    yield from (".SH DESCRIPTION", *_text(cli.help))
    yield from (".SH OPTIONS", *_options(cli))
    group = ""
    for words, command in click_commands(cli):
        if group != (group := verbs()[words[0]]):
            yield f'.SH "{_escaped(group.upper())}"'
        usage = " ".join([*words, *click_arguments(command)])
        yield f'.SS "{_escaped(usage)}"'
        yield from (*_text(command.help), *_options(command))
    yield from (".SH EXIT STATUS", "0 if it is done, 1 if the server refuses, 2 if there is no")
    yield "server or the usage is wrong."
    yield from _see_also("zmqtriton")


def _options(command: click.Command) -> Iterator[str]:
    for names, about in click_options(command):
        yield from (".TP", _bold(names), _escaped(about))


def _text(help_text: str | None) -> Iterator[str]:
    """Return the paragraphs of a command's help; a block that click prints unchanged stays so."""
    for paragraph in (help_text or "").strip().split("\n\n"):
        yield ".PP"
        if paragraph.startswith("\b\n"):
            yield from (".nf", *map(_escaped, paragraph.splitlines()[1:]), ".fi")
        else:
            yield _escaped(" ".join(paragraph.split()))


def _see_also(other: str) -> tuple[str, ...]:
    where = "share/doc/zmqtriton beside the directory of this page has all documentation."
    return ".SH SEE ALSO", f"{_bold(other)}(1)", ".PP", _escaped(where)


def _bold(text: str) -> str:
    return rf"\fB{_escaped(text)}\fR"


def _escaped(text: str) -> str:
    """Return text that troff prints as it is."""
    plain = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\`").replace("'", "\\(aq")
    return f"\\&{plain}" if plain.startswith((".", "\\(aq")) else plain


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    for name, text in pages().items():
        (DIRECTORY / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
