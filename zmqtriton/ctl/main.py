"""The commands of `zmqtriton-ctl`.

Exit status: 0 done, 1 the server says no, 2 no server or wrong usage.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from zmqtriton.ctl import log_settings, on_demand, repositories
from zmqtriton.ctl.client import Client, NoServer, connect
from zmqtriton.ctl.environments import env
from zmqtriton_floor import __version__
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.logs import line as format_line

_REFUSED = 1
_NO_SERVER = 2
#: A server answers these from memory; a load may take as long as the model does.
_QUICK_S = 10.0

#: How often a server is asked for new lines.
_FOLLOW_EVERY_S = 0.3
_NO_TERMINAL_WIDTH = 4096
_ALL_LINES = 1 << 30

_STATE_STYLES = {"READY": "green", "FAILED": "red", "UNAVAILABLE": "red", "BACKOFF": "yellow"}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="zmqtriton-ctl")
@click.option(
    "--runtime-directory",
    default="",
    metavar="DIR",
    help="Of the server. By default $RUNTIME_DIRECTORY, or that of your newest running server.",
)
@click.pass_context
def cli(context: click.Context, runtime_directory: str) -> None:
    """Ask a running zmqtriton server on this machine, or tell it to load and unload models."""
    context.obj = runtime_directory


def _ask(context: click.Context, question: Callable[[Client], Any]) -> Any:
    """What the server answers; ends the program where it says no, or nothing."""
    try:
        with connect(context.obj) as client:
            return question(client)
    except NoServer as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(_NO_SERVER)
    except ZmqTritonError as error:
        click.echo(f"error: {error.text}", err=True)
        sys.exit(_REFUSED)


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def status(context: click.Context, as_json: bool) -> None:
    """Show every process of the server, why those that died did, and what was answered."""
    found = _ask(context, lambda client: client.call("status", timeout_s=_QUICK_S))
    now_s = time.time()
    for process in found["processes"]:
        started_s = process["started_s"]
        process["uptime_s"] = round(max(0.0, now_s - started_s), 3) if started_s else None
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    _show(
        ("Process", "Model", "Pid", "Started", "Up", "State", "Restarts", "Last reason"),
        [_process_row(process) for process in found["processes"]],
    )
    counts = found.get("counts")
    if counts is None:
        click.echo("\nthe broker does not answer, so requests are not shown", err=True)
    elif counts:
        click.echo()
        header = ("Model", "Answered", "Failed", "Pending", "Executions")
        _show(header, [_count_row(entry) for entry in counts])
    if found.get("resources"):
        click.echo()
        header = ("Resource", "Device", "In use", "Held by", "Awaited by")
        _show(header, [_resource_row(entry) for entry in found["resources"]])
    if found.get("on_demand"):
        click.echo()
        _show(on_demand.HEADER, on_demand.rows(found["on_demand"]))


def _process_row(process: dict[str, Any]) -> Sequence[str]:
    is_stub = process["role"] == "stub"
    started_s = process["started_s"]
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(started_s)) if started_s else "-"
    return (
        f"stub {process['instance']}" if is_stub else process["role"],
        f"{process['model']}:{process['version']}" if is_stub else "",
        str(process["pid"] or "-"),
        started,
        "-" if process["uptime_s"] is None else _duration(process["uptime_s"]),
        process.get("state", ""),
        str(process.get("restarts", "")),
        process.get("last_reason", ""),
    )


def _count_row(entry: dict[str, Any]) -> Sequence[str]:
    numbers = [str(entry[key]) for key in ("succeeded", "failed", "pending", "executions")]
    return (f"{entry['model']}:{entry['version']}", *numbers)


def _resource_row(entry: dict[str, Any]) -> Sequence[str]:
    held = ", ".join(f"{name} ({count})" for name, count in entry["holders"].items())
    device = "-" if entry["device"] is None else str(entry["device"])
    used = f"{entry['in_use']} of {entry['count']}"
    return (entry["resource"], device, used, held or "-", ", ".join(entry["waiting"]) or "-")


def _duration(seconds: float) -> str:
    """The two largest units that count."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def _show(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        # As text, so that a model's reason cannot be markup.
        table.add_row(*(Text(cell, style=_STATE_STYLES.get(cell, "")) for cell in row))
    # What another program reads has one line for each row, however long.
    Console(width=None if sys.stdout.isatty() else _NO_TERMINAL_WIDTH).print(table)


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--ready", is_flag=True, help="Only those that can be asked now.")
@click.pass_context
def models(context: click.Context, as_json: bool, ready: bool) -> None:
    """List the models of the repositories and their states."""
    entries = _ask(
        context, lambda client: client.call("index", {"ready": ready}, timeout_s=_QUICK_S)
    )
    if as_json:
        click.echo(json.dumps(entries, indent=2))
        return
    rows = [
        (e["name"], e.get("version", "-"), e.get("state", "-"), e.get("reason", ""))
        for e in entries
    ]
    _show(("Model", "Version", "State", "Reason"), rows)


@cli.command()
@click.argument("model")
@click.pass_context
def load(context: click.Context, model: str) -> None:
    """Load MODEL, or load it again if its files have changed."""
    _ask(context, lambda client: client.call("load", {"model": model, "parameters": {}}))
    click.echo(f"loaded {model}")


@cli.command()
@click.argument("model")
@click.option("--dependents", is_flag=True, help="Its dependents too.")
@click.pass_context
def unload(context: click.Context, model: str, dependents: bool) -> None:
    """Unload MODEL; requests that are under way are finished."""
    arguments = {"model": model, "unload_dependents": dependents}
    _ask(context, lambda client: client.call("unload", arguments))
    click.echo(f"unloaded {model}")


@cli.command()
@click.argument("model", default="")
@click.option("--lines", "-n", default=100, type=click.IntRange(1), help="How many; 100.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes, until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each line.")
@click.pass_context
def logs(context: click.Context, model: str, lines: int, follow: bool, as_json: bool) -> None:
    """Show the last lines of the log: the server's and its models', or those about MODEL.

    The broker and the frontends write to the server's stderr only.
    """
    write = _write_json if as_json else _write_line
    try:
        _ask(context, lambda client: _read_logs(client, model, lines, follow, write))
    except KeyboardInterrupt:
        return  # how one ends --follow
    except BrokenPipeError:
        # `| head` has enough; Python would complain when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _read_logs(
    client: Client, model: str, lines: int, follow: bool, write: Callable[[dict[str, Any]], None]
) -> None:
    after = 0
    while True:
        asked = {"model": model, "after": after, "lines": lines}
        found = client.call("logs", asked, timeout_s=_QUICK_S)
        if found["lost"]:
            click.echo(f"... {found['lost']} lines were lost", err=True)
        for line in found["lines"]:
            write(line)
        sys.stdout.flush()
        if not follow:
            return
        # Later questions are for all that came since.
        after, lines = found["last"], _ALL_LINES
        time.sleep(_FOLLOW_EVERY_S)


def _write_line(line: dict[str, Any]) -> None:
    origin = (line["pid"], line["file"], line["line"])
    click.echo(format_line(line["level"], origin, line["text"], line["time_s"]))


def _write_json(line: dict[str, Any]) -> None:
    click.echo(json.dumps(line))


def _change_log(context: click.Context, changes: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = _ask(
        context, lambda client: client.call("log.settings", {"changes": changes}, _QUICK_S)
    )
    return found


def _change_repositories(context: click.Context, what: str, path: str) -> list[str]:
    verb = f"repository.{what}"
    paths: list[str] = _ask(context, lambda client: client.call(verb, {"path": path}, _QUICK_S))
    return paths


cli.add_command(env)
cli.add_command(log_settings.command(_change_log))
cli.add_command(repositories.commands(_change_repositories))


def main() -> None:
    """The entry point."""
    cli.main(prog_name="zmqtriton-ctl")


if __name__ == "__main__":
    main()
