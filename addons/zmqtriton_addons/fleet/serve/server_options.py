"""The options of a group's servers: the chosen ones, and those that a fleet needs beside them."""

from __future__ import annotations

from pathlib import Path

from zmqtriton.command_line import read_options
from zmqtriton_addons.fleet.serve.groups import Group
from zmqtriton_floor.errors import InvalidArgument

#: Unless they are chosen. Any free ports, since there may be several servers on a machine: which
#: they are is announced. A model that fails is no reason to take the others from a node. A replica
#: that dies cannot drain its server before: proxies see within this time that it goes.
_USUAL = {
    "http-port": "0",
    "grpc-port": "0",
    "metrics-port": "0",
    "exit-on-error": "false",
    "exit-drain-secs": "2",
}
_OWN = ("owner-descriptor", "runtime-directory")
_MODE = "model-control-mode"


def server_options(name: str, group: Group) -> tuple[list[str], float]:
    """Return the options of each server, and the time that it takes to drain and stop, at most.

    Raises InvalidArgument, also for options that no server starts with.
    """
    chosen = {word.partition("=")[0].removeprefix("--") for word in group.options}
    if refused := chosen.intersection(_OWN):
        raise InvalidArgument(f"groups.{name}: --{min(refused)} is the fleet's own")
    if group.models is not None and _MODE in chosen:
        raise InvalidArgument(f"groups.{name}: either models or --{_MODE}")
    usual = dict(_USUAL)
    if _MODE not in chosen:
        usual[_MODE] = "explicit"
        if group.models is None:
            usual["load-model"] = "*"
    words = [f"--model-repository={_absolute(path)}" for path in group.model_repository]
    words += [f"--{option}={value}" for option, value in usual.items() if option not in chosen]
    words += group.options
    options = read_options(words)
    if isinstance(options, int):
        raise InvalidArgument(f"groups.{name}: servers would not start with these options")
    return words, group.drain_within_s + options.exit_drain_secs + options.exit_timeout_secs


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).absolute())
