"""The form of what a command prints: text and tables for people, JSON or YAML for programs.

Results go to stdout; errors and notes go to stderr, for programs as one line of JSON each.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import click

from zmqtriton_addons.ctl.yaml_text import yaml_lines

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


def print_result(form: str, document: Any, shown: str | Callable[[], object]) -> None:
    """Print a result: for people a text, or what a call prints; for programs a document."""
    if form != "table":
        print_document(form, document)
    elif isinstance(shown, str):
        click.echo(shown)
    else:
        shown()


def print_note(text: str) -> None:
    """Print a note or an error on stderr: for programs one line of JSON."""
    _print_aside(text, {"note": text})


def print_error(text: str, status: int) -> None:
    """Print an error on stderr: for programs one line of JSON with the exit status."""
    _print_aside(f"error: {text}", {"error": text, "exit_status": status})


def _print_aside(text: str, document: dict[str, Any]) -> None:
    # JSON is YAML, too
    click.echo(text if chosen_form() == "table" else json.dumps(document), err=True)
