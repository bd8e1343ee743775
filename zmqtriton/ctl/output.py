"""The form of what a command lists: a table for people, JSON or YAML for programs."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import click

FORMS = ("table", "json", "yaml")


#: Adds `--output`; the command gets the parameter `form`.
form_option = click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(FORMS),
    default="table",
    help="Form of the output; default is table.",
)


def with_format(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--output` and `--json`; the command gets the parameter `form`."""

    @functools.wraps(command)
    def run(*words: Any, as_json: bool, form: str, **options: Any) -> None:
        command(*words, form="json" if as_json else form, **options)

    as_json = click.option(
        "--json", "as_json", is_flag=True, help="Print JSON; the same as `-o json`."
    )
    return form_option(as_json(run))


def print_document(form: str, document: Any) -> None:
    """Print a document of JSON's types as JSON or YAML."""
    if form == "json":
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo("\n".join(yaml_lines(document)))


def yaml_lines(value: Any) -> Iterator[str]:
    """Yield the lines of a YAML document; texts are quoted as in JSON, which YAML includes."""
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
    return json.dumps(value)


#: Words that YAML reads as something else than a text.
_NOT_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"})
