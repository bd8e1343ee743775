"""`zmqtriton-ctl completion`: the script by which a shell completes commands and models."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_PROGRAM = "zmqtriton-ctl"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and models in SHELL.

    In ~/.bashrc: eval "$(zmqtriton-ctl completion bash)"
    """
    kind = get_completion_class(shell)
    assert kind is not None, shell
    variable = f"_{_PROGRAM.replace('-', '_').upper()}_COMPLETE"
    click.echo(kind(context.find_root().command, {}, _PROGRAM, variable).source())
