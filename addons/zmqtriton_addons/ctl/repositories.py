"""`zmqtriton-ctl repository`: where a running server looks for models."""

from __future__ import annotations

import os

import click

from zmqtriton.control_client import QUICK_TIMEOUT_S
from zmqtriton_addons.ctl import CommandGroup, print_result, run_with_client, with_format


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
    _change(context, "repository.register", path, form)


@repository.command()
@click.argument("path")
@with_format
@click.pass_context
def unregister(context: click.Context, path: str, form: str) -> None:
    """Stop looking for models in PATH; models that were loaded from it stay."""
    _change(context, "repository.unregister", path, form)


def _change(context: click.Context, verb: str, path: str, form: str) -> None:
    arguments = {"path": os.path.abspath(path)}
    paths = run_with_client(
        context, lambda client: client.call(verb, arguments, QUICK_TIMEOUT_S), to_change=True
    )
    print_result(form, {"repositories": paths}, "\n".join(paths))
