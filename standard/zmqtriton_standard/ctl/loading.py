"""`zmqtriton-ctl load`, `unload` and `repository`: a server's models, and where it finds them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from zmqtriton.control_client import QUICK_TIMEOUT_S, Client, NoServerError, ServerSelector, connect
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_standard.ctl.asking import change_model, check_name, run_with_client
from zmqtriton_standard.ctl.output import LiveLine, print_result, with_format
from zmqtriton_standard.ctl.selecting import MODEL, CommandGroup

_PROGRESS_EVERY_S = 0.5


@contextmanager
def shown_load(client: Client, model: str) -> Iterator[None]:
    """Show what the load of a model waits for; "" is that of any model."""
    done = threading.Event()
    with LiveLine(model or "loading") as line:
        watcher = threading.Thread(
            target=_watch, args=(ServerSelector(str(client.directory)), model, line, done)
        )
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def _watch(server: ServerSelector, model: str, line: LiveLine, done: threading.Event) -> None:
    """Look every now and then; a server that does not answer is the command's to report."""
    if done.wait(_PROGRESS_EVERY_S):
        return  # most loads take less, and need no second connection
    try:
        with connect(server) as client:
            while not done.wait(_PROGRESS_EVERY_S):
                line.show(describe(client.call("loads", timeout_s=QUICK_TIMEOUT_S), model))
    except (NoServerError, ZmqTritonError):
        return


def describe(phases: dict[str, str], model: str) -> str:
    """Describe a load by its phase, or all loads."""
    if model:
        return phases.get(model, "")
    return ", ".join(f"{name} ({phase})" for name, phase in phases.items())


@click.command()
@click.argument("model", type=MODEL)
@with_format
@click.pass_context
def load(context: click.Context, model: str, form: str) -> None:
    """Load MODEL, or reload it if its files have changed."""
    outcome = run_with_client(context, lambda client: _load(client, model), to_change=True)
    is_same = outcome == "unchanged"
    text = f"{model} has not changed and serves on as it is" if is_same else f"loaded {model}"
    print_result(form, {"model": model, "result": "unchanged" if is_same else "loaded"}, text)


@click.command()
@click.argument("model", type=MODEL)
@click.option("--dependents", is_flag=True, help="Unload its dependents too.")
@with_format
@click.pass_context
def unload(context: click.Context, model: str, dependents: bool, form: str) -> None:
    """Unload MODEL; requests in flight are finished."""
    # Triton accepts any name, so a typing error would look like success
    change_model(context, "unload", model, unload_dependents=dependents)
    print_result(form, {"model": model, "result": "unloaded"}, f"unloaded {model}")


def _load(client: Client, model: str) -> Any:
    try:
        with shown_load(client, model):
            return client.call("load", {"model": model, "parameters": {}})
    except ZmqTritonError:
        check_name(client, model)
        raise


@click.group(cls=CommandGroup)
def repository() -> None:
    """Add repositories to a running server, or remove them.

    For servers that run with --model-control-mode=explicit.
    """


@repository.command()
@click.argument("path")
@with_format
@click.pass_context
def register(context: click.Context, path: str, form: str) -> None:
    """Look for models in PATH too."""
    _change_repositories(context, "repository.register", path, form)


@repository.command()
@click.argument("path")
@with_format
@click.pass_context
def unregister(context: click.Context, path: str, form: str) -> None:
    """Stop looking for models in PATH; models that were loaded from it stay."""
    _change_repositories(context, "repository.unregister", path, form)


def _change_repositories(context: click.Context, verb: str, path: str, form: str) -> None:
    arguments = {"path": os.path.abspath(path)}
    paths = run_with_client(
        context, lambda client: client.call(verb, arguments, QUICK_TIMEOUT_S), to_change=True
    )
    print_result(form, {"repositories": paths}, "\n".join(paths))
