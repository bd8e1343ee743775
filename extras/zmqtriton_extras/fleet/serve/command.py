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

from zmqtriton.sdk.wire import NotFound, Unavailable, ZmqTritonError
from zmqtriton_standard.ctl.yaml_text import yaml_lines

_LOOK_EVERY_S = 0.5
_READY, _FAILED = "RUNNING", "DEPLOY_FAILED"


def run_fleet(words: list[str]) -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="zmqtriton fleet",
        description="Servers on a cluster of Ray, as deployments of Ray Serve.",
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    up = verbs.add_parser("up", help="have the cluster run what FILE says, and wait until it does")
    config = verbs.add_parser("config", help="print FILE as a configuration for `serve deploy`")
    down = verbs.add_parser("down", help="end the fleet of FILE in order")
    for verb in (up, config, down):
        verb.add_argument("file", type=Path, metavar="FILE", help="groups of models, as YAML")
    for verb in (up, down):
        verb.add_argument(
            "--address",
            default="auto",
            metavar="ADDRESS",
            help="the cluster (default: $RAY_ADDRESS, or the one of this machine)",
        )
    arguments = parser.parse_args(words)
    try:
        return _run(arguments.verb, arguments.file, getattr(arguments, "address", ""))
    except (ZmqTritonError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def _run(verb: str, file: Path, address: str) -> int:
    try:
        # only now: they are an extra, and take a second
        from zmqtriton_extras.fleet.serve.application import read_fleet
        from zmqtriton_extras.fleet.serve.groups import serve_config
    except ImportError:
        raise NotFound("Ray Serve is not installed here: pip install 'ray[serve]'") from None
    fleet = read_fleet(file)
    document = serve_config(fleet)
    if verb == "config":
        sys.stdout.write("\n".join(yaml_lines(document)) + "\n")
        return 0
    with _connecting(address):
        if verb == "up":
            _deploy(document, address)
        else:
            _delete(fleet.name, address)
    return _wait(fleet.name) if verb == "up" else 0


def _deploy(document: object, address: str) -> None:
    from ray.serve.scripts import run

    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        # JSON is YAML, too
        json.dump(document, file)
        file.flush()
        words = ["--non-blocking", f"--address={address}", file.name]
        run.main(args=words, standalone_mode=False)


def _delete(name: str, address: str) -> None:
    import ray
    from ray import serve

    ray.init(address=address, namespace="serve", log_to_driver=False)
    serve.delete(name)
    _tell(f"{name}: deleted")


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
    """Print each change until the fleet runs, or cannot run."""
    from ray import serve

    shown: dict[str, str] = {}
    while True:
        application = serve.status().applications.get(name)
        state = application.status if application is not None else "NOT_STARTED"
        parts = {name: application, **(application.deployments if application else {})}
        for part, each in parts.items():
            text = f"{each.status} {each.message}".strip() if each else state
            if shown.get(part) != text:
                _tell(f"{part}: {text}")
                shown[part] = text
        if state in (_READY, _FAILED):
            return int(state == _FAILED)
        time.sleep(_LOOK_EVERY_S)


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
