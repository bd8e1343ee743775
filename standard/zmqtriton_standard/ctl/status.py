"""`zmqtriton-ctl servers`, `status`, `models` and `config`: processes, models and options.

The kernel shows the memory and the processor time of all processes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from zmqtriton.sdk.models import asking, figures
from zmqtriton.sdk.process import Client, NoServerError, ServerIdentity, ServerSelector
from zmqtriton.sdk.wire import Unavailable
from zmqtriton_standard.ctl.asking import exit_on_error, run_with_client
from zmqtriton_standard.ctl.output import print_result, with_format
from zmqtriton_standard.ctl.selecting import MODEL
from zmqtriton_standard.ctl.tables import print_table, terminal_width
from zmqtriton_standard.metrics.processes import PROC, read_stat

_PROCESS = (
    "Process",
    "Model",
    "Pid",
    "Started",
    "Up",
    "State",
    "Restarts",
    "Memory",
    "CPU",
    "Last reason",
)
_STARTED_COLUMN = _PROCESS.index("Started")
#: Minimum seconds of an execution to be shown.
_LONG_EXECUTION_S = 5.0
#: Width of a terminal with room for the whole table; a narrower one gets no start times.
_WIDE_COLUMNS = 120
#: Tables with a row for each model.
_OF_MODELS = ("processes", "counts", "quotas", "kept")
ON_DEMAND_HEADER = (
    "On demand",
    "Memory",
    "Loads",
    "Failed",
    "Idle",
    "Made room",
    "Slept",
    "Waiting",
    "Last",
    "Ago",
)


class Use(NamedTuple):
    #: Pages that several processes share count in each.
    memory_bytes: int = 0
    #: Processor time in seconds since the start of each process.
    cpu_s: float = 0.0


def use_of_models(
    processes: Iterable[Mapping[str, Any]], proc: Path = PROC
) -> dict[tuple[str, int], Use]:
    """Return the memory and time of each version's instances; the rows are from the status."""
    sums: dict[tuple[str, int], Use] = {}
    stubs = [row for row in processes if row["role"] == "stub" and row["pid"]]
    # several may be threads of one process
    for pid, row in {row["pid"]: row for row in stubs}.items():
        if stat := read_stat(pid, proc):
            key = row["model"], row["version"]
            before = sums.get(key, Use())
            sums[key] = Use(before.memory_bytes + stat.memory_bytes, before.cpu_s + stat.cpu_s)
    return sums


def only_model(
    model: str, status: dict[str, Any], index: Iterable[dict[str, Any]]
) -> dict[str, Any]:
    """Return the part of a status about this model. Raises NotFound without such a model."""
    kept = {
        table: [row for row in status[table] or () if row.get("model") == model]
        for table in _OF_MODELS
        if table in status
    }
    names = [entry["name"] for entry in index]
    if not any(kept.values()) and model not in names:
        raise Client.unknown_model(model, names)
    return {**status, **kept, "resources": [], "on_demand": {}}


def print_status(
    server: ServerIdentity,
    status: dict[str, Any],
    index: Iterable[dict[str, Any]],
    now_s: float,
) -> None:
    places = "".join(f", {service} {place}" for service, place in server.addresses.items())
    up = figures.format_duration(now_s - server.started_s) if server.started_s else "-"
    click.echo(f"'{server.id}', zmqtriton {server.build}, up {up}{places}: {server.ready}\n")
    table: list[Sequence[str]] = [_PROCESS, *map(_process_row, status["processes"])]
    if (terminal_width() or _WIDE_COLUMNS) < _WIDE_COLUMNS:
        # The uptime tells the same.
        table = [(*row[:_STARTED_COLUMN], *row[_STARTED_COLUMN + 1 :]) for row in table]
    print_table(table[0], table[1:])
    troubled = [model_row(entry) for entry in index if asking.needs_attention(entry)]
    _print_section(("Not ready", "Version", "State", "Reason"), troubled)
    _print_tables(status)
    if log := asking.describe_log(status.get("log", {})):
        click.echo(f"\n{log}")


def _print_tables(status: dict[str, Any]) -> None:
    if status.get("counts") is None:
        click.echo("\nthe broker has not answered in time, so requests are not shown", err=True)
    counts = status.get("counts") or ()
    status = {**status, "chosen": [row for row in counts if "auto" in row.get("batching", {})]}
    for table, header, row in _TABLES:
        _print_section(header, [row(entry) for entry in status.get(table) or ()])
        if table == "quotas" and status.get(table):
            click.echo(f"limits on memory and cores are kept by {status['quotas_kept_by']}")
    if status.get("on_demand"):
        _print_section(ON_DEMAND_HEADER, on_demand_rows(status["on_demand"]))


def _print_section(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table after an empty line, if it has rows."""
    if rows:
        click.echo()
        print_table(header, rows)


def model_row(entry: dict[str, Any]) -> Sequence[str]:
    """Return the row for an entry of the index."""
    version, state = entry.get("version", "-"), entry.get("state", "-")
    return (entry["name"], version, state, entry.get("reason", ""))


def _process_row(process: dict[str, Any]) -> Sequence[str]:
    is_stub, is_of_model = process["role"] == "stub", "version" in process
    started_s = process["started_s"]
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(started_s)) if started_s else "-"
    return (
        f"stub {process['instance']}" if is_stub else process["role"],
        f"{process['model']}:{process['version']}" if is_of_model else "",
        str(process["pid"] or "-"),
        started,
        "-" if process["uptime_s"] is None else figures.format_duration(process["uptime_s"]),
        _state(process),
        str(process.get("restarts", "")),
        figures.format_bytes(process["memory_bytes"]),
        "-" if process["cpu_s"] is None else figures.format_duration(process["cpu_s"]),
        process.get("last_reason", ""),
    )


def _state(process: Mapping[str, Any]) -> str:
    if not process.get("is_connected", True):
        return "not connected"
    state, executing_s = process.get("state", ""), process.get("executing_s", 0.0)
    if executing_s < _LONG_EXECUTION_S:
        return str(state)
    return f"{state}, executing {figures.format_duration(executing_s)}"


def _count_row(entry: dict[str, Any]) -> Sequence[str]:
    return (
        f"{entry['model']}:{entry['version']}",
        *[str(entry[key]) for key in ("succeeded", "failed", "pending", "executions")],
    )


def _choice_row(entry: dict[str, Any]) -> Sequence[str]:
    batching, owner = entry["batching"], f"{entry['model']}:{entry['version']}"
    delay = figures.brief(batching["delay_us"] / 1e6)
    return owner, batching["auto"], delay, str(batching["target"])


def _drain_row(entry: dict[str, Any]) -> Sequence[str]:
    return (
        entry.get("instance") or entry.get("model") or "the server",
        entry["state"],
        entry["then"],
        "?" if entry["under_way"] is None else str(entry["under_way"]),
        figures.format_duration(entry["seconds"]),
    )


def _quota_row(entry: dict[str, Any]) -> Sequence[str]:
    numbers = [entry[key] for key in ("limit", "used", "exceeded")]
    return (entry["model"], entry["quota"], *map(_format_figure, numbers))


def _format_figure(figure: float | None) -> str:
    if figure is None:
        return "-"
    return f"{figure:g}" if isinstance(figure, float) else str(figure)


def _held_row(entry: dict[str, Any]) -> Sequence[str]:
    return (
        f"{entry['role']} {entry['pid']}",
        f"{entry['model']}:{entry['version']}",
        figures.format_bytes(entry["bytes"]),
    )


def _resource_row(entry: dict[str, Any]) -> Sequence[str]:
    held = ", ".join(f"{name} ({count})" for name, count in entry["holders"].items())
    device = "-" if entry["device"] is None else str(entry["device"])
    used = f"{entry['in_use']} of {entry['count']}"
    return (entry["resource"], device, used, held or "-", ", ".join(entry["waiting"]) or "-")


def _kept_row(entry: dict[str, Any]) -> Sequence[str]:
    return entry["model"], str(entry["version"]), "yes" if entry["is_kept"] else "no", entry["text"]


#: The tables of a status below that of its processes: headers, and what makes a row of an entry.
_TABLES: tuple[tuple[str, Sequence[str], Callable[[dict[str, Any]], Sequence[str]]], ...] = (
    ("counts", ("Model", "Answered", "Failed", "Pending", "Executions"), _count_row),
    ("chosen", ("Batches of", "Target", "Chosen delay", "Size"), _choice_row),
    ("drains", ("Drain of", "State", "Then", "Under way", "Since"), _drain_row),
    ("quotas", ("Model", "Quota", "Limit", "Used", "Exceeded"), _quota_row),
    ("resources", ("Resource", "Device", "In use", "Held by", "Awaited by"), _resource_row),
    ("held", ("Held by", "Memory of", "Size"), _held_row),
    ("kept", ("Loaded again", "Version", "Kept", "What, or why not"), _kept_row),
)


def on_demand_rows(status: dict[str, Any]) -> list[Sequence[str]]:
    """Return a row for each model; the last ones have the sums and the limits."""
    waiting = status["waiting"]
    shown: list[Sequence[str]] = [
        (
            row["model"],
            _mib(row["bytes"]),
            *(str(row[key]) for key in ("loads", "failures", "idle", "memory", "sleeps")),
            str(waiting.get(row["model"], 0)),
            row["event"],
            f"{row['seconds_ago']:.0f}s",
        )
        for row in status["models"]
    ]
    for budget in (status, *status["gpus"]):
        if budget["budget_bytes"]:
            where = f"all models on GPU {budget['gpu']}" if "gpu" in budget else "all models"
            used = f"{_mib(budget['used_bytes'])} of {_mib(budget['budget_bytes'])}"
            shown.append((where, used, *[""] * (len(ON_DEMAND_HEADER) - 2)))
    return shown


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB" if size else "-"


_HEADER = ("Id", "Pid", "Up", "HTTP", "gRPC", "Metrics", "Directory", "Models")


@click.command()
@with_format
@click.pass_context
def servers(context: click.Context, form: str) -> None:
    """List the servers on this machine, the newest first."""
    with exit_on_error():
        clients = ServerSelector(context.obj.directory).connect_all()
    Client.identify_all(clients)
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
    up = figures.format_duration(time.time() - server.started_s)
    return (server.id, str(server.pid), up, *places, directory, server.ready)


@click.command()
@click.argument("model", type=MODEL, default="")
@with_format
@click.pass_context
def status(context: click.Context, model: str, form: str) -> None:
    """Show processes and counts of the server, or of MODEL."""
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
    document = client.call("status", timeout_s=Client.QUICK_TIMEOUT_S)
    server = ServerIdentity.from_status(document)
    index = []
    if has_index:
        # whether there is such a model only its repository can say
        arguments = {"ready": False, "reasons": True, "urgent": not model}
        index = client.call("index", arguments, timeout_s=Client.QUICK_TIMEOUT_S)
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
        context,
        lambda client: client.call("index", {"ready": ready}, timeout_s=Client.QUICK_TIMEOUT_S),
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
    """Show the server's options, or MODEL's configuration.

    Options are those that differ from their defaults.
    A model's config is that of its highest version, or of VERSION, with everything that was
    completed, in the form of config.pbtxt.
    """
    if model:
        document = run_with_client(context, lambda client: _read_config(client, model, version))
        print_result(form, document, lambda: click.echo(_to_text(document), nl=False))
        return
    rows = run_with_client(
        context,
        lambda client: client.call("options", timeout_s=Client.QUICK_TIMEOUT_S),
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
    config: dict[str, Any] = client.call(
        "config", {"model": model, "version": version or -1}, timeout_s=Client.QUICK_TIMEOUT_S
    )
    if not config:
        client.check_model(model)
        what = f"version {version} of model '{model}'" if version else f"model '{model}'"
        raise Unavailable(
            f"{what} does not serve, so it uses no config; `zmqtriton-ctl explain {model}` says why"
        )
    return config


def _to_text(document: dict[str, Any]) -> str:
    # only now: it reads protobuf definitions
    from zmqtriton.sdk.models import pbtxt

    return pbtxt.to_text(pbtxt.parse_json(json.dumps(document)))


def _show(value: Any) -> str:
    """Return a value as it is written on a command line; "-" for no value."""
    if isinstance(value, list):
        return " ".join(map(str, value)) or "-"
    if isinstance(value, bool):
        return str(value).lower()
    return "-" if value in ("", None) else str(value)
