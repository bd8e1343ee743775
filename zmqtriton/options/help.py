"""The text of `--help`, made from the table of options and the defaults in Options.

Options without effect are marked, so that the page promises nothing.
"""

from __future__ import annotations

import textwrap

from zmqtriton import addons
from zmqtriton.options.kinds import Arity, KnownOption
from zmqtriton.options.result import DEFAULTS
from zmqtriton.options.table import OPTION_GROUPS

_WIDTH = 80
_INDENT = " " * 8
_GENERAL = (
    "  -h, --help [<group or word>]",
    f"{_INDENT}Print this and exit, or the part with this word: --help cache.",
    "  --version",
    f"{_INDENT}Print the version and exit.",
    "",
    "Examples:",
    "  zmqtriton run shout.py --reload",
    "  zmqtriton --model-repository=models --model-control-mode=explicit",
    "  zmqtriton-ctl explain                         the cause of a failure, and the remedy",
    "Documentation: https://github.com/zmqtriton/zmqtriton, share/doc/zmqtriton",
)
#: Words that people look for, and those of the options.
_SYNONYMS = {
    **dict.fromkeys(("tls", "https", "mtls", "certificate"), ("ssl", "-cert", "server-key")),
    **dict.fromkeys(
        ("auth", "authentication", "login", "password", "api-key", "security"),
        ("tokens", "restricted", "ssl-mutual"),
    ),
    **dict.fromkeys(("cors", "csrf"), ("origin",)),
    **dict.fromkeys(("hot", "hot-reload", "autoreload"), ("reload", "model-control", "poll-secs")),
    **dict.fromkeys(("rollback", "upgrade", "zero-downtime"), ("take-over", "state-directory")),
    **dict.fromkeys(("nginx", "caddy", "proxy"), ("allowed-host", "allowed-origin", "announce")),
    **dict.fromkeys(("image", "audio", "picture", "sound"), ("functions-", "max-input-size")),
    **dict.fromkeys(("throughput", "slow", "performance"), ("workers", "processes", "profile")),
    **dict.fromkeys(("prometheus", "monitoring"), ("metrics",)),
    "concurrency": ("max-requests", "workers"),
    "cold": ("on-demand", "unload-idle"),
}
#: Options whose defaults depend on addresses; their help texts say how.
_DERIVED = ("allow-client-shm", "grpc-reflection")


def help_text(about: str = "") -> str:
    """Return the whole help, or the groups and options with a word or a synonym of it."""
    words = (about.lower(), *_SYNONYMS.get(about.lower(), ()))
    lines = [
        "Usage: zmqtriton --model-repository=<directory> [options]",
        *(
            f"       zmqtriton {usage}"
            for usage in addons.usages().values()
            if about.lower() in usage
        ),
        *(() if about else ("", *_GENERAL)),
    ]
    for group, options in OPTION_GROUPS.items():
        fitting = [
            option
            for option in options
            if any(word in f"{group} {option.name} {option.help}".lower() for word in words)
        ]
        if fitting:
            lines += ["", f"{group}:", *(line for each in fitting for line in _option_lines(each))]
    if len(lines) == 1:
        groups = f"Groups: {', '.join(OPTION_GROUPS)}."
        lines += [f"Nothing has the word '{about}'. {groups}", _GENERAL[-1]]
    return "\n".join(lines)


def _option_lines(option: KnownOption) -> list[str]:
    metavar = "" if option.arity is Arity.SWITCH else f" <{option.metavar}>"
    text = f"{option.help}{default_text(option)}{option.reason and ' (Ignored.)'}"
    wrapped = textwrap.wrap(
        text, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False
    )
    return [f"  --{option.name}{metavar}", *wrapped]


def default_text(option: KnownOption) -> str:
    """Return the default as a sentence, or ""."""
    word = default_of(option)
    return f" Default is {word}." if word else ""


def default_of(option: KnownOption) -> str:
    """Return the default; "" for a flag, for a repeatable option and for an empty default."""
    default = DEFAULTS.get(option.field_name)
    is_told = option.arity is Arity.LAST_WINS and option.name not in _DERIVED
    if not is_told or default is None or default == "":
        return ""
    if isinstance(default, float):
        return f"{default:g}"
    return str(default).lower() if isinstance(default, bool) else str(default)
