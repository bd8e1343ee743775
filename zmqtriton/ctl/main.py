"""The commands of `zmqtriton-ctl`.

Exit status: 0 done, 1 refused by the server, 2 no server or wrong usage.
"""

from __future__ import annotations

import importlib

import click

from zmqtriton import standard_output
from zmqtriton.control_client.client import ServerSelector
from zmqtriton.ctl.selecting import ServerGroup, parse_server
from zmqtriton_floor import __version__

#: The module of each command. It is imported with its command: the others need not wait for it.
_MODULES = {
    "bench": "benching.command",
    "canary": "canaries",
    "completion": "completion",
    "config": "listing",
    "doctor": "doctor.command",
    "drain": "drains",
    "env": "environments",
    "explain": "explaining.command",
    "fleet": "fleet.command",
    "infer": "inferring.command",
    "load": "loading",
    "log-settings": "log_settings",
    "logs": "logs.command",
    "models": "listing",
    "proxy": "proxy.command",
    "reload": "loading",
    "repository": "repositories",
    "restart": "loading",
    "scale": "scaling",
    "servers": "servers",
    "stacks": "stacks",
    "stats": "statistics",
    "status": "listing",
    "top": "statistics",
    "undrain": "drains",
    "unload": "loading",
    "wait": "waiting",
}


class _Commands(ServerGroup):
    """The commands of the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        module = importlib.import_module(f"zmqtriton.ctl.{_MODULES[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="zmqtriton-ctl")
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
    """Inspect and control a zmqtriton server on this machine."""
    context.obj = ServerSelector(runtime_directory, server)


def main() -> None:
    """The entry point."""
    standard_output.escape_unencodable()
    cli.main(prog_name="zmqtriton-ctl")


if __name__ == "__main__":
    main()
