"""The text of `--help`, made from the table of options and the defaults in Options.

Options without effect are marked, so that the page promises nothing.
"""

from __future__ import annotations

import textwrap
from dataclasses import fields

from zmqtriton import addons
from zmqtriton.options.kinds import Arity, Option, OptionSupport
from zmqtriton.options.result import Options
from zmqtriton.options.table import OPTION_GROUPS

_WIDTH = 80
_INDENT = " " * 8
_SUPPORT_NOTES = {
    OptionSupport.SUPPORTED: "",
    OptionSupport.PLANNED: " (No effect yet.)",
    OptionSupport.IGNORED: " (Ignored.)",
}
#: The subcommands of the core, each with its usage; `--help` after one says more.
_COMMANDS = {
    "completion": "completion bash|zsh|fish         complete commands and options in a shell",
    "deploy": "deploy [kind [directory]]        write units, configurations and manifests",
    "protos": "protos directory                write the .proto files of the gRPC API",
    "token": "token new|list|remove ...       make tokens for clients of a server",
}
#: Their defaults depend on addresses, which their help says.
_DERIVED = ("allow-client-shm", "grpc-reflection")
_DEFAULTS = {field.name: field.default for field in fields(Options)}


def commands() -> dict[str, str]:
    """Return the usage of each subcommand, those of add-ons, too."""
    return {**addons.own_usages(), **_COMMANDS, **addons.usages_of_others()}


def help_text() -> str:
    lines = [
        "Usage: zmqtriton --model-repository=<directory> [options]",
        *(f"       zmqtriton {usage}" for usage in commands().values()),
        "",
        "  -h, --help",
        f"{_INDENT}Print this and exit.",
        "  --version",
        f"{_INDENT}Print the version and exit.",
    ]
    for group, options in OPTION_GROUPS.items():
        lines += ["", f"{group}:"]
        for option in options:
            lines += _option_lines(option)
    return "\n".join(lines)


def _option_lines(option: Option) -> list[str]:
    metavar = "" if option.arity is Arity.SWITCH else f" <{option.metavar}>"
    text = f"{option.help}{default_text(option)}{_SUPPORT_NOTES[option.support]}"
    wrapped = textwrap.wrap(
        text, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False
    )
    return [f"  --{option.name}{metavar}", *wrapped]


def default_text(option: Option) -> str:
    """Return the default as a sentence, or ""."""
    word = default_of(option)
    return f" Default is {word}." if word else ""


def default_of(option: Option) -> str:
    """Return the default; "" for a flag, for a repeatable option and for an empty default."""
    default = _DEFAULTS.get(option.field_name)
    if option.arity is not Arity.LAST_WINS or default is None or default == "":
        return ""
    if option.name in _DERIVED:
        return ""
    if isinstance(default, float):
        return f"{default:g}"
    return str(default).lower() if isinstance(default, bool) else str(default)
