"""`zmqtriton-ctl repository`: where a running server looks for models."""

from __future__ import annotations

import os
from collections.abc import Callable

import click

from zmqtriton.ctl.output import print_result, with_format

#: Calls the server with verb and path; returns all repositories.
ChangeRepository = Callable[[click.Context, str, str], list[str]]


def build_group(ask: ChangeRepository) -> click.Group:
    """Build the group of commands."""

    @click.group()
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
        _print(form, ask(context, "register", os.path.abspath(path)))

    @repository.command()
    @click.argument("path")
    @with_format
    @click.pass_context
    def unregister(context: click.Context, path: str, form: str) -> None:
        """Stop looking for models in PATH; models that were loaded from it stay."""
        _print(form, ask(context, "unregister", os.path.abspath(path)))

    return repository


def _print(form: str, paths: list[str]) -> None:
    print_result(form, {"repositories": paths}, "\n".join(paths))
