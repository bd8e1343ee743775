"""`zmqtriton-ctl logs`: the last lines of the log, and those that come."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from zmqtriton.ctl.asking import run_with_client
from zmqtriton.ctl.client import QUICK_TIMEOUT_S, Client
from zmqtriton.ctl.selecting import MODEL
from zmqtriton_floor.logs import line as format_line

#: How often a server is asked for new lines.
_FOLLOW_EVERY_S = 0.3
_ALL_LINES = 1 << 30


@click.command()
@click.argument("model", type=MODEL, default="")
@click.option(
    "--lines", "-n", default=100, type=click.IntRange(1), help="Number of lines; default is 100."
)
@click.option("--follow", "-f", is_flag=True, help="Follow the log until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each line.")
@click.pass_context
def logs(context: click.Context, model: str, lines: int, follow: bool, as_json: bool) -> None:
    """Show the last lines of the log: the server's and its models', or those about MODEL.

    The broker and the frontends write to the server's stderr only.
    """
    write = _write_json if as_json else _write_line
    try:
        run_with_client(context, lambda client: _read_logs(client, model, lines, follow, write))
    except KeyboardInterrupt:
        return  # the usual end of --follow
    except BrokenPipeError:
        # `| head` has enough; Python would complain when it flushes at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _read_logs(
    client: Client, model: str, lines: int, follow: bool, write: Callable[[dict[str, Any]], None]
) -> None:
    after = 0
    while True:
        asked = {"model": model, "after": after, "lines": lines}
        found = client.call("logs", asked, timeout_s=QUICK_TIMEOUT_S)
        if found["lost"]:
            click.echo(f"... {found['lost']} lines were lost", err=True)
        for line in found["lines"]:
            write(line)
        sys.stdout.flush()
        if not follow:
            return
        # later calls ask for everything that came since
        after, lines = found["last"], _ALL_LINES
        time.sleep(_FOLLOW_EVERY_S)


def _write_line(line: dict[str, Any]) -> None:
    origin = (line["pid"], line["file"], line["line"])
    click.echo(format_line(line["level"], origin, line["text"], line["time_s"]))


def _write_json(line: dict[str, Any]) -> None:
    click.echo(json.dumps(line))
