"""The commands of `zmqtriton-ctl`.

Exit status: 0 done, 1 refused by the server, 2 no server or wrong usage.
"""

from __future__ import annotations

from typing import Any

import click

from zmqtriton.ctl import (
    canaries,
    drains,
    log_settings,
    repositories,
    scaling,
    stacks,
)
from zmqtriton.ctl.asking import check_name, run_with_client
from zmqtriton.ctl.client import QUICK_TIMEOUT_S, Client, ServerSelector
from zmqtriton.ctl.client_commands import CLIENT_COMMANDS
from zmqtriton.ctl.completion import completion
from zmqtriton.ctl.doctor.command import doctor
from zmqtriton.ctl.environments import env
from zmqtriton.ctl.explaining.command import explain
from zmqtriton.ctl.fleet.command import fleet
from zmqtriton.ctl.listing import config, models, status
from zmqtriton.ctl.loading import load, reload, restart, unload
from zmqtriton.ctl.logs.command import logs
from zmqtriton.ctl.proxy.command import proxy
from zmqtriton.ctl.selecting import ServerGroup, parse_server
from zmqtriton.ctl.servers import servers
from zmqtriton.ctl.statistics import stats, top
from zmqtriton.ctl.waiting import wait
from zmqtriton_floor import __version__


@click.group(cls=ServerGroup, context_settings={"help_option_names": ["-h", "--help"]})
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


def _scale(context: click.Context, arguments: dict[str, Any]) -> dict[str, Any]:
    def question(client: Client) -> Any:
        check_name(client, arguments["model"])
        return client.call("scale", arguments)

    found: dict[str, Any] = run_with_client(context, question, to_change=True)
    return found


def _update_log_settings(context: click.Context, changes: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = run_with_client(
        context,
        lambda client: client.call("log.settings", {"changes": changes}, QUICK_TIMEOUT_S),
        to_change=bool(changes),
    )
    return found


def _change_repositories(context: click.Context, what: str, path: str) -> list[str]:
    verb = f"repository.{what}"
    paths: list[str] = run_with_client(
        context, lambda client: client.call(verb, {"path": path}, QUICK_TIMEOUT_S), to_change=True
    )
    return paths


def _call_about_canary(context: click.Context, verb: str, arguments: dict[str, Any]) -> Any:
    """Make a call; one that loads a version takes as long as that does."""
    is_change = verb != "canary.status"
    timeout_s = None if is_change else QUICK_TIMEOUT_S
    return run_with_client(
        context, lambda client: client.call(verb, arguments, timeout_s), to_change=is_change
    )


_COMMANDS = (
    canaries.build_group(_call_about_canary),
    *CLIENT_COMMANDS,
    completion,
    config,
    doctor,
    *drains.build_commands(run_with_client, check_name),
    env,
    explain,
    fleet,
    load,
    log_settings.build_command(_update_log_settings),
    logs,
    models,
    reload,
    proxy,
    repositories.build_group(_change_repositories),
    restart,
    scaling.build_command(_scale),
    servers,
    stacks.build_command(run_with_client),
    stats,
    top,
    status,
    unload,
    wait,
)
for _command in _COMMANDS:
    cli.add_command(_command)


def main() -> None:
    """The entry point."""
    cli.main(prog_name="zmqtriton-ctl")


if __name__ == "__main__":
    main()
