"""`zmqtriton-ctl clients` and `disconnect`: connected clients, and the end of one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from zmqtriton.sdk.process import Client
from zmqtriton.sdk.wire import NotFound
from zmqtriton_standard.ctl.asking import run_with_client
from zmqtriton_standard.ctl.output import print_note, print_result, with_format
from zmqtriton_standard.ctl.selecting import seconds_option
from zmqtriton_standard.ctl.status import format_bytes
from zmqtriton_standard.ctl.tables import print_table

_HEADER = ("Address", "Token", "Protocol", "Connections", "Busy", "Req/s", "Received/s")
#: Seconds; each process that serves clients has five of them.
_WITHIN_S = 10.0


@click.command()
@seconds_option("--interval", default=1.0, minimum=0.1, text="Seconds between two looks.")
@with_format
@click.pass_context
def clients(context: click.Context, interval: float, form: str) -> None:
    """Show connected clients, the busiest first.

    Rates are those of the next --interval seconds, on connections that are still open then.
    """

    rows = run_with_client(context, lambda client: read_rates(client, interval))
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
        rows = _ask(client, **wish)
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


def read_rates(client: Client, interval_s: float) -> list[dict[str, Any]]:
    """Return the clients with their rates in the next seconds, the busiest first."""
    before, began_s = _ask(client), time.monotonic()
    time.sleep(interval_s)
    return rates(before, _ask(client), time.monotonic() - began_s)


def rates(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], seconds: float
) -> list[dict[str, Any]]:
    """Return rows of clients with their rates between two readings, the busiest first."""
    keys = ("requests", "received_bytes")
    earlier = {_key(row): row for row in _sums(before)}
    rows = []
    for row in _sums(after):
        last = earlier.get(_key(row), {})
        # less than before if connections have gone
        grown = [max(0, row.pop(key) - last.get(key, 0)) / seconds for key in keys]
        rows.append(row | {"requests_per_s": grown[0], "received_bytes_per_s": grown[1]})
    return sorted(
        rows,
        key=lambda row: (row["requests_per_s"], row["busy"], row["connections"]),
        reverse=True,
    )


def _sums(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each client and protocol, the sum of its rows of all frontends."""
    sums: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        total = sums.setdefault(_key(row), dict.fromkeys(row, 0))
        for name, value in row.items():
            total[name] = value if isinstance(value, str) else total[name] + value
    return [*sums.values()]


def _key(row: Mapping[str, Any]) -> tuple[str, ...]:
    return row["protocol"], row["address"], row["token"]


def _ask(client: Client, **wish: Any) -> list[dict[str, Any]]:
    answer = client.call("connections", wish, _WITHIN_S)
    if silent := answer["silent_processes"]:
        print_note(f"{silent} processes that serve clients have not answered in time")
    return list(answer["connections"])


def _row(row: Mapping[str, Any]) -> Sequence[str]:
    return (
        row["address"] or "-",
        row["token"] or "-",
        row["protocol"],
        str(row["connections"]),
        str(row["busy"]),
        f"{row['requests_per_s']:.3g}",
        format_bytes(row["received_bytes_per_s"]),
    )
