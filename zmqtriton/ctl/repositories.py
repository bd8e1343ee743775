"""`zmqtriton-ctl repository`: where a running server looks for models."""

from __future__ import annotations

import os
from collections.abc import Callable

import click

#: Asks the server: verb and path; all repositories then.
ChangeRepository = Callable[[click.Context, str, str], list[str]]


def build_group(ask: ChangeRepository) -> click.Group:
    """The group of commands."""

    @click.group()
    def repository() -> None:
        """Add directories of models to a running server, or take them away.

        For servers that run with --model-control-mode=explicit.
        """

    @repository.command()
    @click.argument("path")
    @click.pass_context
    def register(context: click.Context, path: str) -> None:
        """Look for models in PATH too."""
        click.echo("\n".join(ask(context, "register", os.path.abspath(path))))

    @repository.command()
    @click.argument("path")
    @click.pass_context
    def unregister(context: click.Context, path: str) -> None:
        """Do not look into PATH any more; models that were loaded from it stay."""
        click.echo("\n".join(ask(context, "unregister", os.path.abspath(path))))

    return repository
