"""`zmqtriton-ctl clients` and `disconnect`: connected clients, and the end of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from zmqtriton.sdk.models import asking, figures
from zmqtriton.sdk.process import Client
from zmqtriton.sdk.wire import NotFound
from zmqtriton_standard.ctl.asking import run_with_client
from zmqtriton_standard.ctl.output import print_note, print_result, with_format
from zmqtriton_standard.ctl.selecting import seconds_option
from zmqtriton_standard.ctl.tables import print_table

_HEADER = ("Address", "Token", "Protocol", "Connections", "Busy", "Req/s", "Received/s")


@click.command()
@seconds_option("--interval", default=1.0, minimum=0.1, text="Seconds between two looks.")
@with_format
@click.pass_context
def clients(context: click.Context, interval: float, form: str) -> None:
    """Show connected clients, the busiest first.

    Rates are measured in the next --interval seconds, on connections that stay open.
    """

    rows = run_with_client(context, lambda client: asking.read_rates(client, interval, print_note))
    print_result(form, rows, lambda: print_table(_HEADER, [*map(_row, rows)]))


@click.command()
@click.argument("address", default="", metavar="[ADDRESS]")
@click.option("--token", default="", metavar="NAME", help="Name of the client's token.")
@with_format
@click.pass_context
def disconnect(context: click.Context, address: str, token: str, form: str) -> None:
    """Close a client's connections now.

    Its requests, gRPC streams, events and WebSockets end.
    ADDRESS is an IP address or a network such as 10.0.0.0/8. With --token, connections count
    whose current request has this token. To keep the client out, remove its token first, or
    refuse its address in the firewall.
    """
    if not (address or token):
        raise click.UsageError("name the client: ADDRESS, --token NAME, or both")
    wish = {"address": address, "token": token, "end": True}

    def question(client: Client) -> list[dict[str, Any]]:
        rows = asking.ask_clients(client, print_note, **wish)
        if not rows:
            who = " and ".join(filter(None, (address, token and f"token '{token}'")))
            raise NotFound(f"no open connection of {who}; `zmqtriton-ctl clients` lists all")
        return rows

    rows = run_with_client(context, question, to_change=True)
    ended, on = (sum(row[key] for row in rows) for key in ("busy", "connections"))
    text = f"ended {ended} request{_s(ended)} or stream{_s(ended)} on {on} connection{_s(on)}"
    print_result(form, {"connections": on, "busy": ended}, text)


def _s(number: int) -> str:
    return "" if number == 1 else "s"


def _row(row: Mapping[str, Any]) -> Sequence[str]:
    return (
        row["address"] or "-",
        row["token"] or "-",
        row["protocol"],
        str(row["connections"]),
        str(row["busy"]),
        f"{row['requests_per_s']:.3g}",
        figures.format_bytes(row["received_bytes_per_s"]),
    )
