"""The commands of `zmqtriton-ctl`.

Exit status: 0 done, 1 the server says no, 2 no server or wrong usage.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from zmqtriton.ctl.client import Client, NoServer, connect
from zmqtriton_floor import __version__
from zmqtriton_floor.errors import ZmqTritonError

_REFUSED = 1
_NO_SERVER = 2
#: A server answers these from memory; a load may take as long as the model does.
_QUICK_S = 10.0

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
    """Show every process of the server, and why those that died did."""
    found = _ask(context, lambda client: client.call("status", timeout_s=_QUICK_S))
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    now_s = time.time()
    header = ("Process", "Pid", "Up", "State", "Restarts", "Last reason")
    rows = [
        (
            _describe(process),
            str(process["pid"] or "-"),
            _duration(now_s - process["started_s"]) if process["started_s"] else "-",
            process.get("state", ""),
            str(process.get("restarts", "")),
            process.get("last_reason", ""),
        )
        for process in found["processes"]
    ]
    _show(header, rows)


def _describe(process: dict[str, Any]) -> str:
    if process["role"] != "stub":
        return str(process["role"])
    return f"stub {process['model']}:{process['version']} {process['instance']}"


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
    Console().print(table)


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


def main() -> None:
    """The entry point."""
    cli.main(prog_name="zmqtriton-ctl")


if __name__ == "__main__":
    main()
