"""`zmqtriton-ctl servers`: the servers on this machine, as far as this user may know."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from zmqtriton.control_client import (
    Client,
    NoServerError,
    ServerSelector,
    connect_all,
    identify,
)
from zmqtriton_addons.ctl.asking import exit_on_error
from zmqtriton_addons.ctl.output import print_result, with_format
from zmqtriton_addons.ctl.tables import format_duration, print_table

_HEADER = ("Id", "Pid", "Up", "HTTP", "gRPC", "Metrics", "Directory", "Models")


@click.command()
@with_format
@click.pass_context
def servers(context: click.Context, form: str) -> None:
    """List the servers on this machine, the newest first."""
    with exit_on_error():
        clients = connect_all(ServerSelector(context.obj.directory))
    identify(clients)
    print_result(
        form,
        [*map(_json_entry, clients)],
        lambda: print_table(_HEADER, [*map(_row, clients)]),
    )
    for client in clients:
        client.close()


def _json_entry(client: Client) -> dict[str, Any]:
    try:
        identity = client.identity._asdict()
    except NoServerError as error:
        identity = {"error": str(error)}
    return {"directory": str(client.directory), **identity}


def _row(client: Client) -> Sequence[str]:
    directory = str(client.directory)
    try:
        server = client.identity
    except NoServerError:
        return ("-", "-", "-", "-", "-", "-", directory, "it has not answered in time")
    places = [server.addresses.get(service, "-") for service in ("http", "grpc", "metrics")]
    up = format_duration(time.time() - server.started_s)
    return (server.id, str(server.pid), up, *places, directory, server.ready)
