"""`zmqtriton-ctl status` and `models`: what the server runs, and what it has."""

from __future__ import annotations

import time
from typing import Any

import click

from zmqtriton.ctl.asking import run_with_client
from zmqtriton.ctl.client import QUICK_TIMEOUT_S, Client, ServerIdentity
from zmqtriton.ctl.output import print_document, with_format
from zmqtriton.ctl.selecting import MODEL
from zmqtriton.ctl.status import model_row, only_model, print_status
from zmqtriton.ctl.tables import print_table


@click.command()
@click.argument("model", type=MODEL, default="")
@with_format
@click.pass_context
def status(context: click.Context, model: str, form: str) -> None:
    """Show the server's processes, why any died, and its counters; with MODEL, that model's."""
    is_table = form == "table"
    server, found, index = run_with_client(
        context, lambda client: _read_status(client, model, has_index=is_table or bool(model))
    )
    now_s = time.time()
    for process in found["processes"]:
        started_s = process["started_s"]
        process["uptime_s"] = round(max(0.0, now_s - started_s), 3) if started_s else None
    if is_table:
        print_status(server, found, index, now_s)
    else:
        print_document(form, found)


def _read_status(
    client: Client, model: str, *, has_index: bool
) -> tuple[ServerIdentity, dict[str, Any], list[Any]]:
    """Read the status, for people with the index."""
    found = client.call("status", timeout_s=QUICK_TIMEOUT_S)
    server = ServerIdentity.from_status(found)
    index = []
    if has_index:
        index = client.call("index", {"ready": False}, timeout_s=QUICK_TIMEOUT_S)
    if model:
        found = only_model(model, found, index)
        index = [entry for entry in index if entry["name"] == model]
    return server, found, index


@click.command()
@with_format
@click.option("--ready", is_flag=True, help="Only models that are ready.")
@click.pass_context
def models(context: click.Context, form: str, ready: bool) -> None:
    """List the models of the repositories and their states."""
    entries = run_with_client(
        context, lambda client: client.call("index", {"ready": ready}, timeout_s=QUICK_TIMEOUT_S)
    )
    if form != "table":
        print_document(form, entries)
        return
    print_table(("Model", "Version", "State", "Reason"), [model_row(entry) for entry in entries])
