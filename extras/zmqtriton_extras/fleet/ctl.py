"""`zmqtriton-ctl fleet`: several servers at once, over HTTP."""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click

from zmqtriton.sdk.wire import InvalidArgument
from zmqtriton_extras.fleet.servers import rolling, sources
from zmqtriton_extras.fleet.servers.nodes import Node
from zmqtriton_extras.fleet.servers.rolling import NodeService, Reply, ask_all
from zmqtriton_standard.ctl.asking import EXIT_REFUSED, exit_on_error
from zmqtriton_standard.ctl.http_service import parse_headers
from zmqtriton_standard.ctl.inferring import PreparedRequest, RequestOptions
from zmqtriton_standard.ctl.output import print_document, print_error, print_note, with_format
from zmqtriton_standard.ctl.selecting import CommandGroup, seconds_option
from zmqtriton_standard.ctl.tables import print_table

#: The cells of a row, by their titles.
Columns = Mapping[str, Callable[[Mapping[str, Any]], str]]

SERVERS: Columns = {
    "Server": lambda row: row["server"],
    "State": lambda row: row["state"],
    "Ready": lambda row: _count_ready(row["models"]) if row["models"] else "-",
    "Queued": lambda row: str(row.get("queued", "-")),
    "Executing": lambda row: str(row.get("executing", "-")),
    "Used": lambda row: f"{row['utilization']:.0%}" if "utilization" in row else "-",
    "Problem": lambda row: row["problem"],
}
MODELS: Columns = {
    "Server": lambda row: row["server"],
    "Model": lambda row: row["name"],
    "Version": lambda row: row.get("version", "-"),
    "State": lambda row: row.get("state", "-"),
    "Reason": lambda row: row.get("reason", ""),
}
_UNREACHABLE = "unreachable"


def look(service: NodeService) -> dict[str, Any]:
    """Ask a server for all facts that are shown about it."""
    answer = {"is_ready": service.is_ready(), "models": service.index()}
    return {**answer, "load": service.load_figures()}


def describe(reply: Reply[dict[str, Any]]) -> dict[str, Any]:
    node, answer = reply.node, reply.answer
    server = {"server": node.http, "announced": node.state}
    if answer is None:
        state = node.state if node.is_gone else _UNREACHABLE
        return {**server, "state": state, "models": [], "problem": reply.problem}
    if answer["is_ready"]:
        state = "ready"
    else:
        # what it has announced says more than that it is not ready, if it says so, too
        state = node.state if node.state not in ("", "ready") and not node.is_gone else "unready"
    figures = {"queued": 0, "executing": 0, "utilization": 0.0}
    figures = {name: answer["load"].get(name, figure) for name, figure in figures.items()}
    return {**server, "state": state, "models": answer["models"], **figures, "problem": ""}


def models_of(seen: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    return ({"server": each["server"], **model} for each in seen for model in each["models"])


def _count_ready(models: Sequence[Mapping[str, Any]]) -> str:
    meant = [model for model in models if model.get("reason") != "unloaded" and "state" in model]
    return f"{sum(m['state'] == 'READY' for m in meant)} of {len(meant)}"


_VARIABLE = "ZMQTRITON_FLEET"
#: Seconds for responses that a server has in memory.
_LOOK_WITHIN_S = 10.0
_ROLLOUT: Columns = {
    "Server": lambda row: row["server"],
    "Model": lambda row: row["result"],
}
_INFER_COLUMNS: Columns = {
    "Server": lambda row: row["server"],
    "Time": lambda row: f"{row['seconds'] * 1e3:.1f} ms" if "seconds" in row else "-",
    "Outputs": lambda row: row.get("outputs", "-"),
    "Problem": lambda row: row["problem"],
}
_HEADER_LENGTH = "inference-header-content-length"
_SHOWN_DIGITS = 8


class Fleet(NamedTuple):
    """The chosen servers, and the headers and timeout for their requests."""

    words: tuple[str, ...]
    on: tuple[str, ...]
    headers: tuple[str, ...]
    timeout_s: float

    def find(self) -> sources.Listing:
        """Return the chosen servers, ended ones included. Raises InvalidArgument without any."""
        listing = sources.list_servers(self.words, parse_headers(self.headers))
        if self.on:
            chosen = [n for n in listing.nodes if {n.name, n.http, n.host} & set(self.on)]
            listing = sources.Listing(chosen, len(chosen))
        if not listing.nodes and not listing.expected:
            raise InvalidArgument(
                "there is no such server; `zmqtriton-ctl fleet status` lists them"
                if self.on
                else "there is no server"
            )
        return listing

    def services(
        self, nodes: Sequence[Node] | None = None, max_s: float = math.inf
    ) -> list[NodeService]:
        """Return the services of these nodes, by default of all that have not ended."""
        if nodes is None:
            nodes = sources.present(self.find().nodes, print_note)
        headers, within_s = parse_headers(self.headers), min(self.timeout_s, max_s)
        return [NodeService(node, headers, within_s) for node in nodes]


@click.group(cls=CommandGroup)
@click.option(
    "-s",
    "--servers",
    "words",
    multiple=True,
    envvar=_VARIABLE,
    metavar="SERVERS",
    help=f"Where servers are. May be repeated. Default is ${_VARIABLE}, separated by spaces.",
)
@click.option("--on", multiple=True, metavar="NAME|HOST", help="Only this server. May be repeated.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME: VALUE", help="A header, such as a token."
)
@seconds_option(
    "--timeout",
    "timeout_s",
    default=600.0,
    takes_zero=False,
    text="Seconds that a server has for one answer, such as a load.",
)
@click.pass_context
def fleet(
    context: click.Context,
    words: tuple[str, ...],
    on: tuple[str, ...],
    headers: tuple[str, ...],
    timeout_s: float,
) -> None:
    """Look at several servers and change them, over HTTP.

    SERVERS is HOST:PORT or https://HOST:PORT; a file of such lines; an announcement, a directory of
    announcements, or a URL with a path that answers with them; srv:NAME, the SRV records of a name;
    kubectl:[NAMESPACE/]SELECTOR, pods of Kubernetes; or ray:[ADDRESS], a cluster of Ray.
    """
    if not words:
        raise click.UsageError(f"name the servers by --servers or ${_VARIABLE}", context)
    context.obj = Fleet(words, on, headers, timeout_s)


@fleet.command()
@with_format
@click.option("--models", "by_model", is_flag=True, help="A row for each version of a model.")
@click.option(
    "--expect",
    type=click.IntRange(0),
    metavar="N",
    help="How many servers there should be. Default is what the engine knows.",
)
@click.pass_obj
def status(chosen: Fleet, form: str, by_model: bool, expect: int | None) -> None:
    """Show the state of each server; exit with 1 unless all are ready, and as many as expected."""
    with exit_on_error():
        nodes, expected = chosen.find()
        replies = ask_all(chosen.services(nodes, _LOOK_WITHIN_S), look)
    seen = [describe(reply) for reply in replies]
    if by_model:
        _show(form, seen, MODELS, models_of(seen))
    else:
        _show(form, seen, SERVERS, seen)
    ready = sum(each["state"] == "ready" for each in seen)
    wished = max(len(seen), expected if expect is None else expect)
    if ready < wished:
        print_note(f"{ready} of {wished} servers are ready")
        sys.exit(EXIT_REFUSED)


@fleet.command()
@click.argument("model")
@click.argument("inputs", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--json", "file", metavar="FILE", help="Read the inputs from here; - is stdin.")
@click.option("--zeros", "fill", flag_value="zeros", default="", help="Fill others with zeros.")
@with_format
@click.pass_obj
def infer(
    chosen: Fleet, model: str, inputs: tuple[str, ...], file: str | None, fill: str, form: str
) -> None:
    """Send one request for MODEL to each server, and compare times and responses.

    VALUE is as for `zmqtriton-ctl infer`. Outputs are shown by a digest of their bytes.
    """
    wish = RequestOptions(model, inputs, None, file, fill, "", (), chosen.timeout_s)
    with exit_on_error():
        services = chosen.services()
        request = wish.prepare(services[0].http)
        replies = ask_all(services, lambda each: _ask(each, wish.path, request))
    seen = [
        {"server": each.node.http, **(each.answer or {}), "problem": each.problem}
        for each in replies
    ]
    _show(form, seen, _INFER_COLUMNS, seen)
    _exit(replies)


@fleet.command()
@click.argument("model")
@with_format
@click.pass_obj
def load(chosen: Fleet, model: str, form: str) -> None:
    """Load or reload MODEL on all servers at once."""
    _change(form, chosen, lambda service: service.load(model))


@fleet.command()
@click.argument("model")
@with_format
@click.pass_obj
def unload(chosen: Fleet, model: str, form: str) -> None:
    """Unload MODEL on each server."""
    _change(form, chosen, lambda service: service.unload(model))


@fleet.command()
@click.argument("model", default="")
@click.option("--all", "is_all", is_flag=True, help="Drain it on several servers at once.")
@seconds_option("--within", text="Seconds that it may take.")
@with_format
@click.pass_obj
def drain(chosen: Fleet, model: str, is_all: bool, within: float | None, form: str) -> None:
    """Drain MODEL, or the server, on the one chosen server."""
    _change(form, chosen, lambda service: service.drain(model, within), is_for_one=not is_all)


@fleet.command()
@click.argument("model", default="")
@with_format
@click.pass_obj
def undrain(chosen: Fleet, model: str, form: str) -> None:
    """End the drain of MODEL, or of the server, on each server."""
    _change(form, chosen, lambda service: service.undrain(model))


@fleet.command()
@click.argument("model")
@click.option("--drain", "drains", is_flag=True, help="Drain it on each server before.")
@seconds_option(
    "--drain-within", default=60.0, text="Seconds until it is loaded though clients still come."
)
@seconds_option(
    "--ready-within", default=300.0, text="Seconds until the model must be ready on a server."
)
@with_format
@click.pass_obj
def rollout(
    chosen: Fleet, model: str, *, drains: bool, drain_within: float, ready_within: float, form: str
) -> None:
    """Load MODEL again on one server after the other, where it is served.

    Waits until it is ready on a server before the next one, and stops at the first failure.
    """
    with exit_on_error():
        services = chosen.services()
        replies = ask_all(services, lambda service: service.serves(model))
        for reply in replies:
            if reply.problem:
                raise InvalidArgument(f"{reply.node.http}: {reply.problem}; nothing was changed")
        serving = [each for each, reply in zip(services, replies, strict=True) if reply.answer]
        if not serving:
            raise InvalidArgument(
                f"no server serves '{model}'; `zmqtriton-ctl fleet status` lists models"
            )
    end = rolling.perform(
        serving,
        model,
        print_note,
        drain_within_s=drain_within if drains else None,
        ready_within_s=ready_within,
    )
    seen = [{"server": node.http, "result": each.value} for node, each in end.outcomes.items()]
    _show(form, seen, _ROLLOUT, seen)
    for line in end.next_steps(model) if end.reason else ():
        print_note(line)
    if end.reason:
        print_error(end.reason, EXIT_REFUSED)
        sys.exit(EXIT_REFUSED)


def _change(
    form: str, chosen: Fleet, change: Callable[[NodeService], str], *, is_for_one: bool = False
) -> None:
    """Change all servers at once, and print the result of each."""
    with exit_on_error():
        services = chosen.services()
        if is_for_one and len(services) > 1:
            raise InvalidArgument(
                f"this would drain {len(services)} servers at once: name one by --on, or say --all"
            )
        replies = ask_all(services, change)
    seen = [
        {"server": each.node.http, "result": each.answer or "", "problem": each.problem}
        for each in replies
    ]
    if form != "table":
        print_document(form, seen)
    for each in seen if form == "table" else ():
        text = f"{each['server']}: {each['problem'] or each['result']}"
        click.echo(text, err=bool(each["problem"]))
    _exit(replies)


def _show(form: str, seen: Any, columns: Columns, rows: Iterable[Mapping[str, Any]]) -> None:
    if form == "table":
        print_table([*columns], [[cell(row) for cell in columns.values()] for row in rows])
    else:
        print_document(form, seen)


def _exit(replies: Sequence[Reply[Any]]) -> None:
    """Exit with 1 if a server has refused, or has not answered."""
    if any(reply.problem for reply in replies):
        sys.exit(EXIT_REFUSED)


def _ask(service: NodeService, path: str, request: PreparedRequest) -> dict[str, Any]:
    """Send a request to a server; return its time and a digest of the outputs."""
    body, headers = request.encode()
    began_s = time.perf_counter()
    answer = service.infer(path, body, headers)
    seconds = time.perf_counter() - began_s
    length = int(answer.headers.get(_HEADER_LENGTH, 0))
    # before the tensors stands what differs from answer to answer, such as ids
    digest = hashlib.sha256(answer.body[length:]).hexdigest()[:_SHOWN_DIGITS]
    return {"seconds": round(seconds, 6), "outputs": digest}
