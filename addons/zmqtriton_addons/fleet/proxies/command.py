"""`zmqtriton-ctl proxy`: prints the configuration of a proxy in front of several servers."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import click

from zmqtriton.control_client import parse_headers
from zmqtriton.ctl import exit_on_error
from zmqtriton_addons.fleet.proxies import envoy, haproxy, nginx
from zmqtriton_addons.fleet.proxies.following import Follower, Target, serve_receiver
from zmqtriton_addons.fleet.proxies.layout import (
    Layout,
    check_header,
    check_listener,
    is_plain,
    split_address,
)
from zmqtriton_addons.fleet.servers import sources
from zmqtriton_addons.fleet.servers.nodes import Node
from zmqtriton_floor.errors import InvalidArgument

_RENDERERS: dict[str, Callable[[Layout], str]] = {
    "haproxy": haproxy.render,
    "envoy": envoy.render,
    "nginx": nginx.render,
}


def _parse_listener(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        check_listener(value)
    except InvalidArgument as error:
        raise click.BadParameter(error.text) from None
    return value


def _listener(name: str, default: str, help: str) -> Callable[[Any], Any]:
    return click.option(
        f"--{name}",
        default=default,
        metavar="HOST:PORT",
        callback=_parse_listener,
        help=f"{help} Default is {default}; '' for none.",
    )


@click.command()
@click.argument("kind", type=click.Choice(list(_RENDERERS)))
@click.argument("server", nargs=-1)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="M",
    help="A model with a health check of its own. May be repeated. Default is all announced ones.",
)
@_listener("http", "0.0.0.0:8000", "Where the proxy takes HTTP.")
@_listener("grpc", "0.0.0.0:8001", "Where it takes gRPC.")
@_listener("statistics", "127.0.0.1:8404", "Where it shows its statistics.")
@click.option(
    "--sequence-header",
    default="X-Sequence",
    metavar="NAME",
    help="Requests with an equal value of this header go to one server. Default is X-Sequence; "
    "'' for none.",
)
@click.option(
    "--model-header",
    default="X-Model",
    metavar="NAME",
    help="Requests with the name of a model in this header go to servers with that model, which "
    "gRPC needs, where paths have no names. Default is X-Model; '' for none.",
)
@click.option("--certificate", default="", metavar="PEM", help="Certificate and key for clients.")
@click.option("--server-ca", default="", metavar="PEM", help="Authorities of servers with TLS.")
@click.option("--server-name", default="", metavar="NAME", help="Name in all their certificates.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME: VALUE",
    help="A header of health checks, and of requests for announcements.",
)
@click.option(
    "--may-repeat",
    is_flag=True,
    help="Send a request again if the server that executes it dies: it may run twice.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Stay, and write the configuration again when servers come and go.",
)
@click.option(
    "--write",
    "output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file, with --follow.",
)
@click.option(
    "--reload",
    "reload_command",
    default="",
    metavar="COMMAND",
    help="The command after each change, such as 'systemctl reload haproxy'.",
)
@click.option(
    "--receive",
    default="",
    metavar="HOST:PORT",
    callback=_parse_listener,
    help="Where servers announce themselves, by --announce=http://HOST:PORT.",
)
@click.option(
    "--receive-token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The token that they must send, by --announce-token-file.",
)
def proxy(
    kind: str,
    server: tuple[str, ...],
    *,
    headers: tuple[str, ...],
    follow: bool,
    output: Path | None,
    reload_command: str,
    receive: str,
    receive_token_file: Path | None,
    **options: object,
) -> None:
    """Print a configuration of KIND for a proxy in front of several SERVERs.

    A server is HOST:PORT[,grpc=PORT][,agent=PORT] or https://HOST:PORT; a file of such lines; an
    announcement, a directory of announcements, or a URL with a path that answers with them;
    srv:NAME, the SRV records of a name; kubectl:[NAMESPACE/]SELECTOR, pods of Kubernetes; or
    ray:[ADDRESS], a cluster of Ray.
    """
    if follow != (output is not None):
        raise click.UsageError("--follow and --write go together")
    if receive and not follow:
        raise click.UsageError("--receive needs --follow")
    if not server and not receive:
        raise click.UsageError("name servers, or where they announce themselves by --receive")
    with exit_on_error():
        of_probes = parse_headers(headers)

        def render(nodes: list[Node]) -> str:
            layout = _layout(nodes, tuple(of_probes.items()), dict(options), has_all=not follow)
            return _RENDERERS[kind](layout)

        if output is None:
            click.echo(render(_find_nodes(server, of_probes)), nl=False)
            return
        target = Target(output, reload_command)
        follower = Follower(server, of_probes, target, render, _tell)
        _follow(follower, receive, receive_token_file)


@cache
def _note(line: str) -> None:
    """Say something once, however often it is found."""
    _tell(line)


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _follow(follower: Follower, receive: str, token_file: Path | None) -> None:
    """Follow the servers until SIGTERM or Ctrl-C."""
    token = token_file.read_text("utf-8").strip() if token_file is not None else ""
    receiver = None
    if receive:
        host, port = split_address(receive)
        receiver = serve_receiver((host.strip("*"), port), token, follower.receive)
    try:
        _run_until_signal(follower)
    finally:
        if receiver is not None:
            receiver.shutdown()
            receiver.server_close()


def _run_until_signal(follower: Follower) -> None:
    """Run the follower in a thread, since a handler of signals may take no lock."""
    reading, writing = os.pipe()

    def run() -> None:
        try:
            follower.run()
        finally:
            os.write(writing, b".")

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.write(writing, b"."))
    thread = threading.Thread(target=run, name="follower")
    thread.start()
    os.read(reading, 1)
    follower.is_over.set()
    follower.changed.set()
    thread.join()


def _find_nodes(words: Iterable[str], headers: dict[str, str]) -> list[Node]:
    """Return the servers that are there. Raises InvalidArgument without any."""
    candidates = sources.find_nodes(words, headers)
    for node in candidates:
        if node.is_gone:
            click.echo(f"left out: {node.http} ({node.state})", err=True)
    nodes = [node for node in candidates if not node.is_gone]
    if not nodes:
        raise InvalidArgument("there is no server")
    return nodes


def _layout(
    nodes: list[Node],
    probe_headers: tuple[tuple[str, str], ...],
    options: dict[str, object],
    *,
    has_all: bool,
) -> Layout:
    """Return the layout; `has_all` if all servers are there, and none comes later."""
    models = options.pop("models") or _announced_models(nodes)
    assert isinstance(models, tuple)
    for model in models:
        if not is_plain(model):
            raise InvalidArgument(f"'{model}' cannot have a health check: its name is not plain")
        if has_all and not any(node.has(model) for node in nodes):
            raise InvalidArgument(f"no server has the model '{model}'")
    for header in ("sequence_header", "model_header"):
        check_header(str(options[header]))
    fields = {**options, "nodes": tuple(nodes), "models": models, "probe_headers": probe_headers}
    return Layout(**fields)  # type: ignore[arg-type]


def _announced_models(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return the models that servers have announced, as far as paths can name them."""
    names = {model for node in nodes for model in node.models or ()}
    for model in names:
        if not is_plain(model):
            _note(f"no health check of its own: {model}")
    return tuple(sorted(filter(is_plain, names)))
