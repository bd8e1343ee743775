"""`zmqtriton-ctl status` and `models`: what the server runs, and what it has."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from zmqtriton.ctl.asking import run_with_client
from zmqtriton.ctl.client import QUICK_TIMEOUT_S, Client, ServerIdentity
from zmqtriton.ctl.status import model_row, only_model, print_status
from zmqtriton.ctl.tables import print_table


@click.command()
@click.argument("model", default="")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def status(context: click.Context, model: str, as_json: bool) -> None:
    """Show the server's processes, why any died, and its counters; with MODEL, that model's."""
    server, found, index = run_with_client(
        context, lambda client: _read_status(client, model, as_json)
    )
    now_s = time.time()
    for process in found["processes"]:
        started_s = process["started_s"]
        process["uptime_s"] = round(max(0.0, now_s - started_s), 3) if started_s else None
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        print_status(server, found, index, now_s)


def _read_status(
    client: Client, model: str, as_json: bool
) -> tuple[ServerIdentity, dict[str, Any], list[Any]]:
    """Read the status, for people with the index."""
    found = client.call("status", timeout_s=QUICK_TIMEOUT_S)
    server = ServerIdentity.from_status(found)
    index = [] if as_json else client.call("index", {"ready": False}, timeout_s=QUICK_TIMEOUT_S)
    if model:
        found = only_model(model, found, index)
        index = [entry for entry in index if entry["name"] == model]
    return server, found, index


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--ready", is_flag=True, help="Only models that are ready.")
@click.pass_context
def models(context: click.Context, as_json: bool, ready: bool) -> None:
    """List the models of the repositories and their states."""
    entries = run_with_client(
        context, lambda client: client.call("index", {"ready": ready}, timeout_s=QUICK_TIMEOUT_S)
    )
    if as_json:
        click.echo(json.dumps(entries, indent=2))
        return
    print_table(("Model", "Version", "State", "Reason"), [model_row(entry) for entry in entries])
