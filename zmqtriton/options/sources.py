"""Options from a file in TOML, and from environment variables.

Each place names an option as the command line does. Values are texts, which the options' own
readers check. Add-ons may know variables of their own. Does no I/O.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from zmqtriton import addons
from zmqtriton.options.kinds import Arity, KnownOption
from zmqtriton.options.result import Options
from zmqtriton.options.table import OPTIONS_BY_NAME
from zmqtriton.options.values import BadValue, OptionError
from zmqtriton_floor.errors import closest_match
from zmqtriton_floor.settings.offers import Hook

COMMAND_LINE, ENVIRONMENT, COMMAND = "command line", "environment", "default of the command"
#: A prefix of two words: Kubernetes sets ZMQTRITON_HTTP_PORT where a service is so named.
PREFIX = "ZMQTRITON_OPTION_"
CONFIG = "config"


class Entry(NamedTuple):
    """One option with the text of its value."""

    option: KnownOption
    text: str
    #: The option, as its place writes it.
    written: str
    #: The place: a word above, or the path of a file.
    source: str


def in_force(levels: Sequence[Sequence[Entry]]) -> Iterator[Entry]:
    """Return the entries that count: for each option, the entries of the last level with it."""
    for number, level in enumerate(levels, start=1):
        hidden = {each.option.field_name for higher in levels[number:] for each in higher}
        yield from (each for each in level if each.option.field_name not in hidden)


def read_variables(environment: Mapping[str, str]) -> list[Entry]:
    """Return the options of the environment, in the order of their names. Raises OptionError.

    An empty variable is none. An option that may be repeated has one value in each line.
    """
    entries = []
    for variable in sorted(name for name in environment if name.startswith(PREFIX)):
        text = environment[variable]
        name = variable.removeprefix(PREFIX).lower().replace("_", "-")
        option = OPTIONS_BY_NAME.get(name)
        if option is None:
            if lack := addons.lack(f"--{name}"):
                raise OptionError(f"{variable}: {lack}")
            close = closest_match(name, OPTIONS_BY_NAME)
            suggestion = f"; did you mean '{variable_of(close)}'?" if close else ""
            raise OptionError(f"unrecognized variable '{variable}'{suggestion}")
        is_list = option.arity is Arity.REPEATABLE
        lines = filter(str.strip, text.splitlines()) if is_list else filter(None, [text])
        entries += [Entry(option, line, f'"{variable}"', ENVIRONMENT) for line in lines]
    return entries


def variable_of(name: str) -> str:
    """Return the variable for an option."""
    return PREFIX + name.upper().replace("-", "_")


def read_document(path: str, text: str) -> list[Entry]:
    """Return the options of a file in its order. Raises OptionError."""
    # only now, since most servers have no such file
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{path} must be TOML: {error}") from None
    return [entry for name in document for entry in _entries(path, text, name, document[name])]


def _entries(path: str, text: str, name: str, value: Any) -> Iterator[Entry]:
    place = f"{path}{_line_of(name, text)}"
    written = f'"{name}" in {place}'
    option = OPTIONS_BY_NAME.get(name)
    if option is None:
        raise OptionError(_unrecognized(name, place, value))
    if name == CONFIG:
        raise OptionError(
            f"Bad option: {written}.\nA file cannot name another one: remove this line."
        )
    if isinstance(value, list) and option.arity is not Arity.REPEATABLE:
        raise OptionError(
            f"Bad option: {written}.\nOnly options that may be repeated have an array."
        )
    for each in value if isinstance(value, list) else [value]:
        yield Entry(option, _text_of(each, written), written, path)


def _unrecognized(name: str, place: str, value: Any) -> str:
    if lack := addons.lack(f"--{name}"):
        return f"'{name}' in {place}: {lack}"
    if isinstance(value, dict):
        inner = next((f"; did you mean '{name}-{key}'?" for key in value), "")
        return f"'{name}' in {place} is a table, and options stand in no table{inner}"
    meant = name.replace("_", "-")
    close = meant if meant in OPTIONS_BY_NAME else closest_match(meant, OPTIONS_BY_NAME)
    suggestion = f"; did you mean '{close}'?" if close else ""
    return f"unrecognized option '{name}' in {place}{suggestion}"


def _text_of(value: Any, written: str) -> str:
    """Return a value of TOML as the command line has it."""
    if not isinstance(value, (str, int, float)):
        raise OptionError(f"Bad option: {written}.\nA string, a number or a boolean is expected.")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _line_of(name: str, text: str) -> str:
    """Return the line of a key for the text of an error, or "" if the key is not found."""
    key = rf"^[ \t]*(?:\[+[ \t]*)?([\"']?){re.escape(name)}\1[ \t]*[=.\]]"
    match = re.search(key, text, re.MULTILINE)
    return f", line {text.count(chr(10), 0, match.start()) + 1}" if match else ""


class Variables(Protocol):
    """A module for variables of the environment; both functions raise `BadValue`."""

    #: Gets the environment, and returns the changed defaults by field.
    defaults: Callable[[Mapping[str, str]], Mapping[str, Any]]
    #: Gets a function that returns an option by its field, and the environment.
    check: Callable[[Callable[[str], Any], Mapping[str, str]], None]


#: Gives options other defaults if environment variables are set.
VARIABLES = Hook[Variables]("options.variables")


def defaults(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the options that have other defaults in this environment. Raises OptionError."""
    modules = VARIABLES.all_of(addons.offers())
    try:
        return {k: v for module in modules for k, v in module.defaults(environment).items()}
    except BadValue as error:
        raise OptionError(str(error)) from None


def check_variables(options: Options, environment: Mapping[str, str]) -> None:
    """Raise OptionError if a service lacks a variable."""
    try:
        for module in VARIABLES.all_of(addons.offers()):
            module.check(options.value, environment)
    except BadValue as error:
        raise OptionError(str(error)) from None
