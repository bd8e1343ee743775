"""`zmqtriton-ctl env`: prepares, lists and removes the environments of models.

Works without a server; a running one is asked only if its models are given by name.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zmqtriton.sdk.process import Client, NoServerError
from zmqtriton.sdk.wire import NotFound, ZmqTritonError, logs
from zmqtriton_standard.ctl.asking import EXIT_REFUSED, exit_on_error
from zmqtriton_standard.ctl.output import (
    LiveLine,
    print_document,
    print_note,
    print_result,
    with_format,
)
from zmqtriton_standard.ctl.selecting import CommandGroup
from zmqtriton_standard.ctl.tables import print_table

if TYPE_CHECKING:
    from zmqtriton.sdk.process import StepProgress
    from zmqtriton_standard.environments.ahead import ModelEnvironment
    from zmqtriton_standard.environments.cache import CacheEntry, EnvironmentCache


@click.group(cls=CommandGroup)
@click.option(
    "--environment-directory",
    default="",
    metavar="DIR",
    help="The server's option. Default is below $CACHE_DIRECTORY or ~/.cache.",
)
@click.option(
    "--stub-user",
    default="",
    metavar="NAME",
    help="The server's option: work on the environments of models that run as this user.",
)
@click.pass_context
def env(context: click.Context, environment_directory: str, stub_user: str) -> None:
    """Prepare, list and remove the Python environments of models."""
    context.meta["cache"] = (
        _become(stub_user, environment_directory) if stub_user else environment_directory
    )


def _become(name: str, parent: str) -> str:
    from zmqtriton.sdk.models import users

    try:
        return users.become(name, parent)
    except OSError as error:
        raise click.ClickException(str(error)) from None


@env.command()
@click.argument("what", nargs=-1, metavar="[REPOSITORY|MODEL]...")
@click.option(
    "--build-environments",
    is_flag=True,
    help="The server's option: build for every model with a requirements.txt.",
)
@click.option("--model-config-name", default="", metavar="NAME", help="The server's option.")
@click.option("--verbose", is_flag=True, help="Print the output of installers.")
@with_format
@click.pass_context
def prepare(
    context: click.Context,
    what: tuple[str, ...],
    build_environments: bool,
    model_config_name: str,
    verbose: bool,
    form: str,
) -> None:
    """Prepare the environments that a server would make when it loads the models.

    REPOSITORY is a directory of models, or of one; MODEL is the name of a model of a running
    server. Without any, all models of the running server are prepared.
    """
    # only now: the other commands do not need it
    from zmqtriton_standard.environments.ahead import read_environments
    from zmqtriton_standard.environments.cache import EnvironmentCache

    results = []
    with exit_on_error():
        cache = EnvironmentCache(context.meta["cache"])
        for place in list(_find_directories(context, what)):
            environments = read_environments(
                place, may_build=build_environments, config_name=model_config_name
            )
            for demand in environments:
                results.append(_prepare(demand, cache, verbose=verbose))
                if form == "table":
                    _print_prepared(results[-1])
    if form != "table":
        print_document(form, results)
    if any(result["error"] for result in results):
        sys.exit(EXIT_REFUSED)


def _prepare(demand: ModelEnvironment, cache: EnvironmentCache, *, verbose: bool) -> dict[str, str]:
    """Prepare an environment; return its Python, which is "" if it is the server's own."""
    from zmqtriton.sdk.models import Environment
    from zmqtriton_standard.environments.prepare import prepare_environment

    result = {"model": demand.model, "python": "", "error": ""}
    try:
        if isinstance(demand.result, ZmqTritonError):
            raise demand.result
        if not isinstance(demand.result, Environment):
            with LiveLine(f"{demand.model}: preparing {demand.result}") as line:
                environment = prepare_environment(
                    demand.result, cache, _ShownSteps(line, verbose=verbose)
                )
            result["python"] = environment.python
    except ZmqTritonError as error:
        result["error"] = error.text
    return result


class _ShownSteps:
    """Shows the present step, and of the log warnings and errors, or all of it."""

    def __init__(self, line: LiveLine, *, verbose: bool) -> None:
        self._line = line
        self._levels = "EWIV" if verbose else "EW"

    def log(self, level: str, text: str) -> None:
        if level in self._levels:
            print_note(text)

    def progress(self, latest: StepProgress) -> None:
        self._line.show(str(latest))


def _print_prepared(result: dict[str, str]) -> None:
    ready = f"ready, {result['python']}" if result["python"] else "the server's own Python"
    error = result["error"]
    click.echo(logs.escape_lines(f"{result['model']}: {error or ready}"), err=bool(error))


def _find_directories(context: click.Context, what: tuple[str, ...]) -> Iterator[Path]:
    """Return the directories that the arguments name."""
    names = [name for name in what if not os.path.isdir(name)]
    yield from (Path(name) for name in what if os.path.isdir(name))
    if what and not names:
        return
    try:
        with context.find_root().obj.connect() as client:
            status = client.call("status", timeout_s=Client.QUICK_TIMEOUT_S)
    except NoServerError as error:
        subject = ", ".join(names) or "the models"
        raise NotFound(f"{subject}: no such directory, and {error}") from error
    repositories = [Path(path) for path in status["repositories"]]
    if not names:
        yield from repositories
    for name in names:
        places = [path / name for path in repositories if (path / name).is_dir()]
        if not places:
            raise NotFound(f"{name}: must be a directory, or a model of the running server")
        yield from places


@env.command(name="list")
@with_format
@click.pass_context
def list_entries(context: click.Context, form: str) -> None:
    """Show unpacked and built environments, and their sources."""
    from zmqtriton_standard.environments.cache import EnvironmentCache

    with exit_on_error():
        entries = EnvironmentCache(context.meta["cache"]).entries()
    head, document = ("Kind", "Made", "Source", "Directory"), [one._asdict() for one in entries]
    print_result(form, document, lambda: print_table(head, [*map(_row, entries)]))


def _row(entry: CacheEntry) -> Sequence[str]:
    made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.created_s))
    return (entry.kind, made, entry.source, entry.tree)


@env.command()
@with_format
@click.pass_context
def clean(context: click.Context, form: str) -> None:
    """Remove all environments; models that need them make them again."""
    from zmqtriton_standard.environments.cache import EnvironmentCache

    with exit_on_error():
        removed = EnvironmentCache(context.meta["cache"]).remove_all()
    print_result(form, {"removed": removed}, f"removed {removed}")
