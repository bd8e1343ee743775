"""`zmqtriton-ctl servers`, `status`, `models` and `config`: what servers run, have and use."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import click

from zmqtriton.control_client import (
    QUICK_TIMEOUT_S,
    Client,
    NoServerError,
    ServerIdentity,
    ServerSelector,
    connect_all,
    identify,
)
from zmqtriton_floor.errors import Unavailable
from zmqtriton_standard.ctl.asking import check_name, exit_on_error, run_with_client
from zmqtriton_standard.ctl.output import print_result, with_format
from zmqtriton_standard.ctl.selecting import MODEL
from zmqtriton_standard.ctl.status import model_row, only_model, print_status
from zmqtriton_standard.ctl.tables import format_duration, print_table
from zmqtriton_standard.metrics.processes import read_stat

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


@click.command()
@click.argument("model", type=MODEL, default="")
@with_format
@click.pass_context
def status(context: click.Context, model: str, form: str) -> None:
    """Show the server's processes, why any died, and its counters; with MODEL, that model's."""
    server, document, index = run_with_client(
        context,
        lambda client: _read_status(client, model, has_index=form == "table" or bool(model)),
    )
    now_s = time.time()
    for process in document["processes"]:
        started_s = process["started_s"]
        process["uptime_s"] = round(max(0.0, now_s - started_s), 3) if started_s else None
        stat = read_stat(process["pid"]) if process["pid"] else None
        process["memory_bytes"] = stat and stat.memory_bytes
        process["cpu_s"] = stat and stat.cpu_s
    print_result(form, document, lambda: print_status(server, document, index, now_s))


def _read_status(
    client: Client, model: str, *, has_index: bool
) -> tuple[ServerIdentity, dict[str, Any], list[Any]]:
    """Read the status, for people with the index."""
    document = client.call("status", timeout_s=QUICK_TIMEOUT_S)
    server = ServerIdentity.from_status(document)
    index = []
    if has_index:
        # whether there is such a model only its repository can say
        arguments = {"ready": False, "reasons": True, "urgent": not model}
        index = client.call("index", arguments, timeout_s=QUICK_TIMEOUT_S)
    if model:
        document = only_model(model, document, index)
        index = [entry for entry in index if entry["name"] == model]
    return server, document, index


@click.command()
@with_format
@click.option("--ready", is_flag=True, help="Only models that are ready.")
@click.pass_context
def models(context: click.Context, form: str, ready: bool) -> None:
    """List the models of the repositories and their states."""
    entries = run_with_client(
        context, lambda client: client.call("index", {"ready": ready}, timeout_s=QUICK_TIMEOUT_S)
    )
    head = ("Model", "Version", "State", "Reason")
    print_result(form, entries, lambda: print_table(head, [*map(model_row, entries)]))


@click.command()
@click.argument("model", type=MODEL, default="")
@click.argument("version", type=click.IntRange(1), required=False)
@click.option("--all", "has_all", is_flag=True, help="Options with their default value, too.")
@with_format
@click.pass_context
def config(
    context: click.Context, model: str, version: int | None, has_all: bool, form: str
) -> None:
    """Show the options of the server that differ from their defaults; with MODEL, its config.

    A model's config is that of its highest version, or of VERSION, with everything that was
    completed, in the form of config.pbtxt.
    """
    if model:
        document = run_with_client(context, lambda client: _read_config(client, model, version))
        print_result(form, document, lambda: click.echo(_to_text(document), nl=False))
        return
    rows = run_with_client(
        context, lambda client: client.call("options", timeout_s=QUICK_TIMEOUT_S)
    )
    shown = [row for row in rows if has_all or not row["is_default"]]
    # a server of an older version does not tell the source
    cells = [
        [f"--{row['option']}", *(_show(row.get(key, "")) for key in ("value", "default", "source"))]
        for row in shown
    ]
    head = ("Option", "Value", "Default", "From")
    document = {row["option"]: row["value"] for row in shown}
    print_result(form, document, lambda: print_table(head, cells))


def _read_config(client: Client, model: str, version: int | None) -> dict[str, Any]:
    arguments = {"model": model, "version": version or -1}
    config: dict[str, Any] = client.call("config", arguments, timeout_s=QUICK_TIMEOUT_S)
    if not config:
        check_name(client, model)
        what = f"version {version} of model '{model}'" if version else f"model '{model}'"
        raise Unavailable(
            f"{what} does not serve, so it uses no config; `zmqtriton-ctl explain {model}` says why"
        )
    return config


def _to_text(document: dict[str, Any]) -> str:
    # only now: it reads protobuf definitions
    from zmqtriton.config import parse_json, to_text

    return to_text(parse_json(json.dumps(document)))


def _show(value: Any) -> str:
    """Return a value as it is written on a command line; "-" for none."""
    if isinstance(value, list):
        return " ".join(map(str, value)) or "-"
    if isinstance(value, bool):
        return str(value).lower()
    return "-" if value in ("", None) else str(value)
