"""The form of a command's output: text and tables for people, JSON or YAML for programs.

Results go to stdout; errors, notes and the step that a command waits for go to stderr, for programs
as one line of JSON each.
"""

from __future__ import annotations

import functools
import json
import math
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from zmqtriton.sdk.wire import logs
from zmqtriton_standard.ctl.yaml_text import yaml_lines

if TYPE_CHECKING:
    from rich.progress import Progress

FORMS = ("table", "json", "yaml")


#: Key of the output form in click's context, where the printing of errors finds it, too.
_KEY = "zmqtriton.form"
_PERCENTAGE = re.compile(r"(\d+) %")
_BAR_WIDTH = 20


def _remember_form(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Keep the form that an option chooses: `--output` by its name, `--json` by True."""
    if value not in ("table", False):
        context.meta[_KEY] = "json" if value is True else value
    return value


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
        callback=_remember_form,
        help="Print JSON; the same as `-o json`.",
    )
    return form_option(as_json(run))


def chosen_form() -> str:
    """Return the form that the user has chosen for the command that runs."""
    context = click.get_current_context(silent=True)
    return "table" if context is None else str(context.meta.get(_KEY, "table"))


def print_document(form: str, document: Any) -> None:
    """Print a document of JSON's types as JSON or YAML."""
    click.echo(
        json.dumps(_finite(document), indent=2)
        if form == "json"
        else "\n".join(yaml_lines(document))
    )


def _finite(document: Any) -> Any:
    """Return a document with null for NaN and infinities, which JSON lacks."""
    if isinstance(document, dict):
        return {name: _finite(value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [_finite(value) for value in document]
    return None if isinstance(document, float) and not math.isfinite(document) else document


def print_result(form: str, document: Any, shown: str | Callable[[], object]) -> None:
    """Print a result: for people the text or the call `shown`, for programs the document."""
    if form != "table":
        print_document(form, document)
    elif isinstance(shown, str):
        click.echo(logs.escape_lines(shown))
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
    click.echo(
        logs.escape_lines(text) if chosen_form() == "table" else json.dumps(document), err=True
    )


class LiveLine:
    """A line on stderr with the present step and its time, from the first second on.

    Without a terminal, it prints a line after five seconds and then every ten.
    """

    FIRST_S = 5.0
    EVERY_S = 10.0

    def __init__(self, what: str) -> None:
        self._what = what
        self._step = ""
        self._began_s = time.monotonic()
        self._has_ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._bar: Progress | None = None

    def __enter__(self) -> LiveLine:
        if sys.stderr.isatty() and chosen_form() == "table":
            self._bar = _make_bar()
            self._bar.add_task(self._what, total=None)
            self._bar.start()
        else:
            self._thread = threading.Thread(target=self._print_now_and_then, daemon=True)
            self._thread.start()
        return self

    def show(self, step: str) -> None:
        """Show the present step; a percentage in it moves the bar."""
        self._step = step = logs.escape(step)
        if self._bar is not None:
            share = _PERCENTAGE.search(step)
            self._bar.update(
                self._bar.task_ids[0],
                description=f"{self._what}: {step}",
                total=100 if share else None,
                completed=int(share[1]) if share else 0,
            )

    def _print_now_and_then(self) -> None:
        pause_s = self.FIRST_S
        while not self._has_ended.wait(pause_s):
            pause_s = self.EVERY_S
            step = f": {self._step}" if self._step else ""
            print_note(f"{self._what}{step}, for {time.monotonic() - self._began_s:.0f} s")

    def __exit__(self, *error: object) -> None:
        self._has_ended.set()
        if self._bar is not None:
            self._bar.stop()
        if self._thread is not None:
            self._thread.join()


def _make_bar() -> Progress:
    # only now: it takes long to import, and most commands show none
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=_BAR_WIDTH),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
