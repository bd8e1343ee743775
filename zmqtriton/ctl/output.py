"""The form of what a command prints: text and tables for people, JSON or YAML for programs.

Results go to stdout; errors and notes go to stderr, for programs as one line of JSON each.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import click

FORMS = ("table", "json", "yaml")


#: In the context of the command, where errors find the form, too.
_KEY = "zmqtriton.form"


def _remember_form(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if value != "table":
        context.meta[_KEY] = value
    return value


def _choose_json(context: click.Context, parameter: click.Parameter, is_chosen: bool) -> bool:
    if is_chosen:
        context.meta[_KEY] = "json"
    return is_chosen


#: Adds `--output`; the command gets the parameter `form`.
form_option = click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(FORMS),
    default="table",
    callback=_remember_form,
    help="Form of the output; default is table.",
)


def with_format(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--output` and `--json`; the command gets the parameter `form`."""

    @functools.wraps(command)
    def run(*words: Any, as_json: bool, form: str, **options: Any) -> None:
        command(*words, form="json" if as_json else form, **options)

    as_json = click.option(
        "--json",
        "as_json",
        is_flag=True,
        callback=_choose_json,
        help="Print JSON; the same as `-o json`.",
    )
    return form_option(as_json(run))


def chosen_form() -> str:
    """Return the form that the user has chosen for the command that runs."""
    context = click.get_current_context(silent=True)
    return "table" if context is None else str(context.meta.get(_KEY, "table"))


def print_document(form: str, document: Any) -> None:
    """Print a document of JSON's types as JSON or YAML."""
    if form == "json":
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo("\n".join(yaml_lines(document)))


def print_result(form: str, document: Any, text: str) -> None:
    """Print what was done: a text for people, or a document for programs."""
    if form == "table":
        click.echo(text)
    else:
        print_document(form, document)


def print_note(text: str) -> None:
    """Print on stderr what is no result: for programs one line of JSON."""
    _print_aside(text, {"note": text})


def print_error(text: str, status: int) -> None:
    """Print an error on stderr: for programs one line of JSON with the exit status."""
    _print_aside(f"error: {text}", {"error": text, "exit_status": status})


def _print_aside(text: str, document: dict[str, Any]) -> None:
    # JSON is YAML, too
    click.echo(text if chosen_form() == "table" else json.dumps(document), err=True)


def yaml_lines(value: Any) -> Iterator[str]:
    """Yield the lines of a YAML document; texts are quoted nearly as in JSON."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _nested(f"{_scalar(key)}:", inner, "  ")
    elif isinstance(value, list) and value:
        for inner in value:
            lines = list(yaml_lines(inner))
            yield f"- {lines[0]}"
            yield from (f"  {line}" for line in lines[1:])
    else:
        yield _scalar(value)


def _nested(head: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, (dict, list)) and value:
        yield head
        yield from (f"{indent}{line}" for line in yaml_lines(value))
    else:
        yield f"{head} {_scalar(value)}"


def _scalar(value: Any) -> str:
    is_plain = isinstance(value, str) and value.replace("_", "a").isalpha() and value.isascii()
    if is_plain and value.lower() not in _NOT_TEXT:
        return str(value)
    return _quote(value) if isinstance(value, str) else json.dumps(value)


def _quote(text: str) -> str:
    """Quote a text as in JSON, whose pairs of escapes for one letter YAML does not know."""
    letters = (json.dumps(c)[1:-1] if c < "\U00010000" else f"\\U{ord(c):08x}" for c in text)
    return f'"{"".join(letters)}"'


#: Words that YAML reads as something else than a text.
_NOT_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"})
