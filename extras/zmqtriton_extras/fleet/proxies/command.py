"""`zmqtriton-ctl proxy`: prints the configuration of a proxy in front of several servers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

import click

from zmqtriton.sdk.wire import InvalidArgument
from zmqtriton_extras.fleet.proxies import envoy, haproxy
from zmqtriton_extras.fleet.proxies.following import Follower, Target, serve_receiver
from zmqtriton_extras.fleet.proxies.haproxy import HaproxyCommands
from zmqtriton_extras.fleet.proxies.layout import Layout, is_plain, split_address
from zmqtriton_extras.fleet.servers import sources
from zmqtriton_extras.fleet.servers.nodes import Node
from zmqtriton_standard.ctl.asking import exit_on_error
from zmqtriton_standard.ctl.http_service import parse_headers

_RENDERERS: dict[str, Callable[[Layout], str]] = {
    "haproxy": haproxy.render,
    "envoy": envoy.render,
}
_LISTENER = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+|\*):[0-9]{1,5}", "is not HOST:PORT"
_HEADER = r"[A-Za-z0-9-]+", "is no name of a header"
_DOMAIN = r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*", "is no domain"


def _option(
    name: str, default: str, form: tuple[str, str], metavar: str, help: str
) -> Callable[[Any], Any]:
    """Return an option with a checked form of value, "" by default."""
    pattern, complaint = form

    def check(context: click.Context, parameter: click.Parameter, value: str) -> str:
        if value and not re.fullmatch(pattern, value):
            raise click.BadParameter(f"'{value}' {complaint}")
        return value

    default_text = f" Default is {default}; '' for none." if default else ""
    return click.option(
        f"--{name}",
        default=default,
        metavar=metavar,
        callback=check,
        help=f"{help}{default_text}",
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
@_option("http", "0.0.0.0:8000", _LISTENER, "HOST:PORT", "Where the proxy takes HTTP.")
@_option("grpc", "0.0.0.0:8001", _LISTENER, "HOST:PORT", "Where it takes gRPC.")
@_option("statistics", "127.0.0.1:8404", _LISTENER, "HOST:PORT", "Where it shows its statistics.")
@_option(
    "sequence-header",
    "X-Sequence",
    _HEADER,
    "NAME",
    "Requests with an equal value of this header go to one server.",
)
@_option(
    "affinity-header",
    "",
    _HEADER,
    "NAME",
    "Requests with an equal value of this header go to one server, unless it has half as many "
    "requests again as others: that of models with AFFINITY header:NAME.",
)
@_option(
    "model-header",
    "X-Model",
    _HEADER,
    "NAME",
    "Requests with the name of a model in this header go to servers with that model, which gRPC "
    "needs, where paths have no names.",
)
@_option(
    "model-domain",
    "",
    _DOMAIN,
    "DOMAIN",
    "Likewise requests over gRPC that call the host MODEL.DOMAIN.",
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
    "--socket",
    default="",
    metavar="PATH",
    help="With --follow, a socket of HAProxy (2.5 or newer), by which it has servers without a "
    "reload.",
)
@_option(
    "receive",
    "",
    _LISTENER,
    "HOST:PORT",
    "Where servers announce themselves, by --announce=http://HOST:PORT.",
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
    **options: Any,
) -> None:
    """Print a proxy's configuration for several SERVERs.

    A server is HOST:PORT[,grpc=PORT][,agent=PORT] or https://HOST:PORT; a file of such lines; an
    announcement, a directory of announcements, or a URL with a path that answers with them;
    srv:NAME, the SRV records of a name; kubectl:[NAMESPACE/]SELECTOR, pods of Kubernetes; or
    ray:[ADDRESS], a cluster of Ray.
    """
    if follow != (output is not None):
        raise click.UsageError("--follow and --write go together")
    if receive and not follow:
        raise click.UsageError("--receive needs --follow")
    if options["socket"] and (kind != "haproxy" or not follow):
        raise click.UsageError("--socket needs haproxy and --follow")
    if not server and not receive:
        raise click.UsageError("name servers, or where they announce themselves by --receive")
    with exit_on_error():
        of_probes = parse_headers(headers)
        options["probe_headers"] = tuple(of_probes.items())
        render = partial(_render, kind, options, has_all=not follow)
        if output is None:
            nodes = sources.present(sources.find_nodes(server, of_probes), _tell)
            click.echo(render(nodes), nl=False)
            return
        running = HaproxyCommands(Path(socket)) if (socket := options["socket"]) else None
        target = Target(output, reload_command, running)
        follower = Follower(server, of_probes, target, render, _tell)
        if receive:
            token = receive_token_file.read_text("utf-8").strip() if receive_token_file else ""
            host, port = split_address(receive)
            serve_receiver((host.strip("*"), port), token, follower.receive)
        follower.run()


@cache
def _note(line: str) -> None:
    """Print a note, once for each text."""
    _tell(line)


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _render(kind: str, options: dict[str, Any], nodes: list[Node], *, has_all: bool) -> str:
    """Return the configuration; `has_all` if the servers are final, so that none comes later."""
    models = options["models"] or _announced_models(nodes)
    for model in models:
        if not is_plain(model):
            raise InvalidArgument(
                f"'{model}' cannot have a health check: rename it with letters, digits, _ and -"
            )
        if has_all and not any(node.has(model) for node in nodes):
            raise InvalidArgument(
                f"no server has the model '{model}'; load it on one, or correct --model"
            )
    return _RENDERERS[kind](Layout(**{**options, "nodes": tuple(nodes), "models": models}))


def _announced_models(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return the announced models whose names can be used in paths."""
    names = {model for node in nodes for model in node.models or ()}
    for model in names:
        if not is_plain(model):
            _note(f"no health check of its own: {model}")
    return tuple(sorted(filter(is_plain, names)))
