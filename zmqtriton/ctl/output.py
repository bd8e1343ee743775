"""The form of what a command lists: a table for people, JSON or YAML for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import click

FORMS = ("table", "json", "yaml")


def with_format(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--output` and `--json`; the command gets the parameter `form`."""
    as_json = click.option(
        "--json",
        "form",
        flag_value="json",
        help="Print JSON; the same as `-o json`.",
    )
    chosen = click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(FORMS),
        default="table",
        help="Form of the output; default is table.",
    )
    return chosen(as_json(command))


def print_document(form: str, document: Any) -> None:
    """Print a document of JSON's types as JSON or YAML."""
    if form == "json":
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo("\n".join(_yaml_lines(document)))


def _yaml_lines(value: Any) -> Iterator[str]:
    """Yield the lines of a YAML document; texts are quoted as in JSON, which YAML includes."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _nested(f"{_scalar(key)}:", inner, "  ")
    elif isinstance(value, list) and value:
        for inner in value:
            lines = list(_yaml_lines(inner))
            yield f"- {lines[0]}"
            yield from (f"  {line}" for line in lines[1:])
    else:
        yield _scalar(value)


def _nested(head: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, (dict, list)) and value:
        yield head
        yield from (f"{indent}{line}" for line in _yaml_lines(value))
    else:
        yield f"{head} {_scalar(value)}"


def _scalar(value: Any) -> str:
    is_plain = isinstance(value, str) and value.replace("_", "a").isalpha() and value.isascii()
    if is_plain and value.lower() not in _NOT_TEXT:
        return str(value)
    return json.dumps(value)


#: Words that YAML reads as something else than a text.
_NOT_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"})
