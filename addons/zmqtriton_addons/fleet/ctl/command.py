"""`zmqtriton-ctl fleet`: several servers at once, over HTTP."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

from zmqtriton.control_client import parse_headers
from zmqtriton.ctl import (
    EXIT_REFUSED,
    RequestOptions,
    exit_on_error,
    print_document,
    print_error,
    print_note,
    print_table,
    with_format,
)
from zmqtriton_addons.fleet.ctl import inferring, report
from zmqtriton_addons.fleet.servers import rolling, sources
from zmqtriton_addons.fleet.servers.node_service import NodeService, Reply, ask_all
from zmqtriton_addons.fleet.servers.nodes import Node
from zmqtriton_addons.fleet.servers.rollout import Outcome, Rollout
from zmqtriton_floor.errors import InvalidArgument

_VARIABLE = "ZMQTRITON_FLEET"
_NONE = "there is no server"
#: For what a server answers from memory.
_LOOK_WITHIN_S = 10.0


class Fleet(NamedTuple):
    """The choice of servers, and how they are asked."""

    words: tuple[str, ...]
    on: tuple[str, ...]
    headers: tuple[str, ...]
    timeout_s: float

    def find(self) -> list[Node]:
        """Return the chosen servers, gone or not. Raises InvalidArgument without any."""
        return self.find_all()[0]

    def find_all(self) -> tuple[list[Node], int]:
        """Likewise, with the number of servers that there should be."""
        listing = sources.list_servers(self.words, parse_headers(self.headers))
        if not self.on:
            chosen, expected = listing
        else:
            chosen = [n for n in listing.nodes if {n.name, n.http, _host(n)} & set(self.on)]
            expected = len(chosen)
        if not chosen and not expected:
            raise InvalidArgument("there is no such server" if listing.nodes else _NONE)
        return chosen, expected

    def services(self, nodes: Sequence[Node], max_s: float = math.inf) -> list[NodeService]:
        """Return how each is asked; an answer may take as long as chosen, or less."""
        headers, within_s = parse_headers(self.headers), min(self.timeout_s, max_s)
        return [NodeService(node, headers, within_s) for node in nodes]


def _host(node: Node) -> str:
    return node.http.rpartition(":")[0]


@click.group()
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
@click.option(
    "--timeout",
    "timeout_s",
    default=600.0,
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="Seconds that a server has for one answer, such as a load. Default is 600.",
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
        nodes, expected = chosen.find_all()
        replies = ask_all(chosen.services(nodes, _LOOK_WITHIN_S), report.look)
    seen = [report.describe(reply) for reply in replies]
    if form != "table":
        print_document(form, seen)
    elif by_model:
        print_table(report.MODEL_HEADER, report.model_rows(seen))
    else:
        print_table(report.HEADER, report.rows(seen))
    ready = sum(each["state"] == "ready" for each in seen)
    wished = expected if expect is None else expect
    if ready < max(wished, len(seen)):
        print_note(f"{ready} of {max(wished, len(seen))} servers are ready")
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
    """Ask MODEL by one request on each server, and show times and whether answers are the same.

    VALUE is as for `zmqtriton-ctl infer`. Outputs are shown by a digest of their bytes.
    """
    wish = RequestOptions(model, inputs, None, file, fill, "", (), chosen.timeout_s)
    with exit_on_error():
        services = chosen.services(_present(chosen.find()))
        request = wish.prepare(services[0].http)
        replies = ask_all(services, lambda each: inferring.ask(each, wish.path, request))
    seen = [inferring.describe(reply) for reply in replies]
    if form == "table":
        print_table(inferring.HEADER, inferring.rows(seen))
    else:
        print_document(form, seen)
    if any(each["problem"] for each in seen):
        sys.exit(EXIT_REFUSED)


@fleet.command()
@click.argument("model")
@with_format
@click.pass_obj
def load(chosen: Fleet, model: str, form: str) -> None:
    """Load MODEL on each server, or load it again, on all at once."""
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
@click.option("--within", type=click.FloatRange(0), metavar="S", help="Seconds that it may take.")
@with_format
@click.pass_obj
def drain(chosen: Fleet, model: str, is_all: bool, within: float | None, form: str) -> None:
    """Drain MODEL, or the server, on the one server that is chosen."""
    with exit_on_error():
        count = len(chosen.find())
        if count > 1 and not is_all:
            raise InvalidArgument(
                f"this would drain {count} servers at once: name one by --on, or say --all"
            )
    _change(form, chosen, lambda service: service.drain(model, within))


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
@click.option(
    "--drain-within",
    default=60.0,
    type=click.FloatRange(0),
    metavar="S",
    help="Seconds until it is loaded though clients still come. Default is 60.",
)
@click.option(
    "--ready-within",
    default=300.0,
    type=click.FloatRange(0),
    metavar="S",
    help="Seconds until the model must be ready on a server. Default is 300.",
)
@with_format
@click.pass_obj
def rollout(
    chosen: Fleet,
    model: str,
    *,
    drains: bool,
    drain_within: float,
    ready_within: float,
    form: str,
) -> None:
    """Load MODEL again on one server after the other, where it is served.

    Waits until it is ready on a server before the next one, and stops at the first failure.
    """
    with exit_on_error():
        services = chosen.services(_present(chosen.find()))
        serving = ask_all(services, lambda service: service.serves(model))
        for reply in serving:
            if reply.problem:
                raise InvalidArgument(f"{reply.node.http}: {reply.problem}; nothing was changed")
        nodes = [reply.node for reply in serving if reply.answer]
        if not nodes:
            raise InvalidArgument(f"no server serves '{model}'")
    by_node = {service.node: service for service in services}
    plan = Rollout(nodes, drains=drains)
    limits = rolling.Limits(drain_within, ready_within)
    rolling.perform(plan, by_node, model, limits, print_note)
    outcomes = [(node.http, outcome.value) for node, outcome in plan.outcomes.items()]
    if form == "table":
        print_table(("Server", "Model"), outcomes)
    else:
        print_document(form, [{"server": server, "result": result} for server, result in outcomes])
    if plan.reason:
        for line in plan.next_steps(model):
            print_note(line)
        print_error(plan.reason, EXIT_REFUSED)
    if set(plan.outcomes.values()) != {Outcome.NEW}:
        sys.exit(EXIT_REFUSED)


def _present(nodes: Sequence[Node]) -> list[Node]:
    """Return those that have not ended. Raises InvalidArgument without any."""
    for node in nodes:
        if node.is_gone:
            print_note(f"left out: {node.http} ({node.state})")
    present = [node for node in nodes if not node.is_gone]
    if not present:
        raise InvalidArgument(_NONE)
    return present


def _change(form: str, chosen: Fleet, change: Callable[[NodeService], str]) -> None:
    """Change all servers at once, and say what became of each."""
    with exit_on_error():
        replies: list[Reply[Any]] = ask_all(chosen.services(_present(chosen.find())), change)
    if form == "table":
        for reply in replies:
            text = f"{reply.node.http}: {reply.problem or reply.answer}"
            click.echo(text, err=bool(reply.problem))
    else:
        print_document(
            form,
            [
                {"server": each.node.http, "result": each.answer or "", "problem": each.problem}
                for each in replies
            ],
        )
    if any(reply.problem for reply in replies):
        sys.exit(EXIT_REFUSED)
