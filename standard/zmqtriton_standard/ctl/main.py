"""The commands of `zmqtriton-ctl`, and the script that lets a shell complete them.

Exit status: 0 done, 1 refused by the server, 2 no server or wrong usage.
"""

from __future__ import annotations

import os
from itertools import groupby
from typing import NoReturn

import click

from zmqtriton.sdk.process import (
    ServerSelector,
    addons,
    full_version,
    load_reference,
    prctl,
    standard_output,
)
from zmqtriton_standard.ctl.selecting import CommandGroup, move_to_front, parse_server

_PROGRAM = "zmqtriton-ctl"


class _Commands(CommandGroup):
    """The commands of all add-ons; a command's module is imported only when a user types it.

    The options that choose a server may come before or after a command's name.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, move_to_front(args))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*addons.verbs()]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group, names in groupby(self.list_commands(ctx), addons.verbs().__getitem__):
            with formatter.section(group or "Other"):
                commands = [(name, self.get_command(ctx, name)) for name in names]
                formatter.write_dl([(n, c.get_short_help_str(100)) for n, c in commands if c])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        reference = addons.find("ctl", cmd_name)
        command: click.Command | None = load_reference(reference) if reference else None
        return command


def _show_version(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted:
        click.echo(f"zmqtriton-ctl, version {full_version()}")
        context.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.option(
    "--runtime-directory",
    default="",
    metavar="DIR",
    help="Runtime directory of the server. Default is $RUNTIME_DIRECTORY, or your newest server's.",
)
@click.option(
    "--server",
    default="",
    metavar="ID|PID|PORT|URL",
    callback=parse_server,
    help="Which server, if several run; `zmqtriton-ctl servers` lists them. May also be last.",
)
@click.pass_context
def cli(context: click.Context, runtime_directory: str, server: str) -> None:
    """Inspect and control a zmqtriton server on this machine.

    If something is wrong, start with `zmqtriton-ctl explain`. Each command has --help, with its
    options.
    """
    if os.environ.get("NO_COLOR"):  # https://no-color.org
        context.color = False
    context.obj = ServerSelector(runtime_directory, server)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script for tab completion in SHELL.

    In ~/.bashrc: eval "$(zmqtriton-ctl completion bash)"
    """
    # only now: the other commands do not need it
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, shell
    variable = f"_{_PROGRAM.replace('-', '_').upper()}_COMPLETE"
    click.echo(kind(context.find_root().command, {}, _PROGRAM, variable).source())


def main() -> NoReturn:
    """The entry point."""
    standard_output.open_closed()
    standard_output.escape_unencodable()
    prctl.run_program(lambda: cli.main(prog_name="zmqtriton-ctl"))
