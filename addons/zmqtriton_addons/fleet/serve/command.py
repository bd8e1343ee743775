"""`zmqtriton fleet`: a fleet on Ray Serve, from its file."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zmqtriton.yaml_text import yaml_lines
from zmqtriton_addons.fleet.serve.configuration import serve_config
from zmqtriton_floor.errors import NotFound, Unavailable, ZmqTritonError

_LOOK_EVERY_S = 0.5
_READY, _FAILED = "RUNNING", "DEPLOY_FAILED"


def run_fleet(words: list[str]) -> int:
    """Run the command and return the exit status."""
    arguments = _parser().parse_args(words)
    try:
        return int(arguments.run(arguments))
    except (ZmqTritonError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="zmqtriton fleet",
        description="Servers on a cluster of Ray, as deployments of Ray Serve.",
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    up = verbs.add_parser("up", help="have the cluster run what FILE says, and wait until it does")
    up.add_argument("--no-wait", dest="wait", action="store_false", help="do not wait")
    up.set_defaults(run=_go_up)
    config = verbs.add_parser("config", help="print FILE as a configuration for `serve deploy`")
    config.set_defaults(run=_print_config)
    down = verbs.add_parser("down", help="end the fleet of FILE in order")
    down.set_defaults(run=_go_down)
    for verb in (up, config, down):
        verb.add_argument("file", type=Path, metavar="FILE", help="groups of models, as YAML")
    for verb in (up, down):
        verb.add_argument(
            "--address",
            default="auto",
            metavar="ADDRESS",
            help="the cluster (default: $RAY_ADDRESS, or the one of this machine)",
        )
    return parser


def _read(path: Path) -> Any:
    """Read the file, and check the options of its servers. Raises InvalidArgument, and OSError."""
    try:
        # only now: it is an extra, and takes a second
        from zmqtriton_addons.fleet.serve.application import read_fleet
    except ImportError:
        raise NotFound("Ray Serve is not installed here: pip install 'ray[serve]'") from None
    from zmqtriton_addons.fleet.serve.server_options import server_options, stop_within_s

    fleet = read_fleet(path)
    for group in fleet.groups:
        stop_within_s(group, server_options(group))
    return fleet


def _print_config(arguments: argparse.Namespace) -> int:
    sys.stdout.write("\n".join(yaml_lines(serve_config(_read(arguments.file)))) + "\n")
    return 0


def _go_up(arguments: argparse.Namespace) -> int:
    fleet = _read(arguments.file)
    from ray.serve.scripts import run

    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file, _connecting(arguments.address):
        # JSON is YAML, too
        json.dump(serve_config(fleet), file)
        file.flush()
        words = ["--non-blocking", f"--address={arguments.address}", file.name]
        run.main(args=words, standalone_mode=False)
    return _wait(fleet.name) if arguments.wait else 0


@contextmanager
def _connecting(address: str) -> Iterator[None]:
    """Raise Unavailable if there is no cluster at the address."""
    try:
        yield
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise Unavailable(
            f"no Ray cluster at '{address}': {error}. `ray start --head` starts one here, and "
            "`ray start --address=…` adds a machine to it"
        ) from None


def _wait(name: str) -> int:
    """Tell of each change until the fleet runs, or cannot."""
    from ray import serve

    shown: dict[str, str] = {}
    while True:
        application = serve.status().applications.get(name)
        state = application.status if application is not None else "NOT_STARTED"
        states = {"": f"{state} {application.message}".strip() if application else state}
        for group, deployment in (application.deployments if application else {}).items():
            states[group] = f"{deployment.status} {deployment.message}".strip()
        for group, text in states.items():
            if shown.get(group) != text:
                _tell(f"{group or name}: {text}")
        shown = states
        if state in (_READY, _FAILED):
            return int(state == _FAILED)
        time.sleep(_LOOK_EVERY_S)


def _go_down(arguments: argparse.Namespace) -> int:
    fleet = _read(arguments.file)
    import ray
    from ray import serve

    with _connecting(arguments.address):
        ray.init(address=arguments.address, namespace="serve", log_to_driver=False)
    serve.delete(fleet.name)
    _tell(f"{fleet.name}: deleted")
    return 0


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
