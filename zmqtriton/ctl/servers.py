"""`zmqtriton-ctl servers`: which servers run on this machine, as far as this user may know."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import click

from zmqtriton.ctl.client import Client, NoServer, ServerSelector, connect_all
from zmqtriton.ctl.failing import told
from zmqtriton.ctl.tables import duration, show

_HEADER = ("Id", "Pid", "Up", "HTTP", "gRPC", "Metrics", "Directory", "Models")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def servers(context: click.Context, as_json: bool) -> None:
    """List the servers that run here, the newest first."""
    with told():
        clients = connect_all(ServerSelector(context.obj.directory))
    if as_json:
        click.echo(json.dumps([_document(client) for client in clients], indent=2))
    else:
        show(_HEADER, [_row(client) for client in clients])
    for client in clients:
        client.close()


def _document(client: Client) -> dict[str, Any]:
    try:
        identity = client.identity._asdict()
    except NoServer as error:
        identity = {"error": str(error)}
    return {"directory": str(client.directory), **identity}


def _row(client: Client) -> Sequence[str]:
    directory = str(client.directory)
    try:
        server = client.identity
    except NoServer:
        return ("-", "-", "-", "-", "-", "-", directory, "it does not answer")
    places = [server.addresses.get(door, "-") for door in ("http", "grpc", "metrics")]
    up = duration(time.time() - server.started_s)
    return (server.id, str(server.pid), up, *places, directory, server.ready)
