"""`zmqtriton fleet up`: keeps servers running on several nodes until it is told to stop."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from functools import partial
from pathlib import Path

from zmqtriton.control_client import parse_headers
from zmqtriton_addons.fleet.building import Settings, build_fleet
from zmqtriton_addons.fleet.engine import Engine
from zmqtriton_addons.fleet.haproxy import Listeners
from zmqtriton_addons.fleet.local import LocalEngine
from zmqtriton_floor.errors import NotFound, ZmqTritonError

_PORTS = Listeners()


def run_fleet(words: list[str]) -> int:
    """Run the command and return the exit status."""
    arguments, others = _parser().parse_known_args(words)
    proxy = None
    if arguments.proxy:
        proxy = Listeners(arguments.proxy_http, arguments.proxy_grpc, arguments.proxy_statistics)
    settings = Settings(
        model_repositories=arguments.model_repository,
        server_options=others,
        replicas=arguments.replicas,
        directory=arguments.directory,
        proxy=proxy,
        sequence_header=arguments.sequence_header,
    )
    try:
        settings = settings._replace(headers=parse_headers(tuple(arguments.header)))
        fleet = build_fleet(settings, partial(_make_engine, arguments), _tell)
        with fleet:
            _tell(f"announcements: {fleet.directory}")
            _wait_for_signal()
    except (ZmqTritonError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _wait_for_signal() -> None:
    """Wait for the signal to stop. A second one ends this process at once, and with it all others.

    Called when the engine has started: Ray has a handler of its own.
    """
    signals = (signal.SIGTERM, signal.SIGINT)
    has_come = threading.Event()
    for number in signals:
        signal.signal(number, lambda *_: has_come.set())
    has_come.wait()
    for number in signals:
        signal.signal(number, signal.SIG_DFL)
    _tell("stopping")


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _make_engine(arguments: argparse.Namespace, options: list[str]) -> Engine:
    if arguments.engine == "local":
        return LocalEngine(arguments.nodes, options)
    try:
        # only now: it is an extra, and takes a second
        from zmqtriton_addons.fleet.ray import RayEngine, Resources
    except ImportError:
        raise NotFound("Ray is not installed here: pip install ray") from None
    resources = Resources(arguments.cpus, arguments.gpus)
    return RayEngine(arguments.nodes, options, address=arguments.ray_address, resources=resources)


def _parse_count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number above 0")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="zmqtriton fleet",
        description="Keep a server running on each of several nodes, behind HAProxy. All other "
        "options are those of the servers.",
        allow_abbrev=False,
    )
    parser.add_argument("verb", choices=["up"], help="start, and stay until SIGTERM or Ctrl-C")
    parser.add_argument(
        "--engine",
        choices=["ray", "local"],
        required=True,
        help="ray: nodes of a Ray cluster; local: processes on this machine",
    )
    parser.add_argument("--nodes", type=_parse_count, required=True, metavar="N", help="servers")
    parser.add_argument(
        "--model-repository",
        action="append",
        required=True,
        metavar="DIR",
        help="as each node sees it; may be repeated",
    )
    parser.add_argument(
        "--replicas",
        action="append",
        default=[],
        metavar="MODEL=N|MODEL=LEAST-MOST",
        help="put this model on N nodes, or on as many as its load needs; may be repeated "
        "(default: all models on all nodes)",
    )
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="where the announcements and haproxy.cfg are (default: a new one)",
    )
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="a header of requests to the servers, such as a key; may be repeated",
    )
    _add_proxy(parser)
    _add_ray(parser)
    return parser


def _add_proxy(parser: argparse.ArgumentParser) -> None:
    proxy = parser.add_argument_group("HAProxy")
    proxy.add_argument("--no-proxy", dest="proxy", action="store_false", help="start no HAProxy")
    for name, default in _PORTS._asdict().items():
        proxy.add_argument(
            f"--proxy-{name}",
            default=default,
            metavar="HOST:PORT",
            help=f"where it serves {name}; '' for nowhere (default: {default})",
        )
    proxy.add_argument(
        "--sequence-header",
        default="X-Sequence",
        metavar="NAME",
        help="requests with an equal value of this header go to one server (default: X-Sequence)",
    )


def _add_ray(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Ray")
    group.add_argument(
        "--ray-address",
        default="auto",
        metavar="ADDRESS",
        help="the cluster (default: $RAY_ADDRESS, or the one of this machine)",
    )
    group.add_argument(
        "--cpus", type=float, default=1.0, metavar="N", help="CPUs of a server (default: 1)"
    )
    group.add_argument(
        "--gpus", type=float, default=0.0, metavar="N", help="GPUs of a server (default: 0)"
    )
