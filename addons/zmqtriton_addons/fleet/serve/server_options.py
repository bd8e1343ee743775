"""The options of a group's servers: the chosen ones, and those that a fleet needs beside them."""

from __future__ import annotations

from pathlib import Path

from zmqtriton.command_line import read_options
from zmqtriton_addons.fleet.serve.groups import Group
from zmqtriton_floor.errors import InvalidArgument

#: Any free ports, since there may be several servers on a machine. Which they are is announced.
_PORTS = ("http-port", "grpc-port", "metrics-port")
_OWN = ("owner-descriptor", "runtime-directory")
_MODE = "model-control-mode"
#: Longer than proxies take to see that a server is not ready.
_EXIT_DRAIN_S = 2


def server_options(group: Group) -> list[str]:
    """Return the options of each server. Raises InvalidArgument."""
    typed = {word.partition("=")[0].removeprefix("--") for word in group.options}
    if refused := typed.intersection(_OWN):
        raise InvalidArgument(f"groups.{group.name}: --{min(refused)} is the fleet's own")
    if group.models is not None and _MODE in typed:
        raise InvalidArgument(f"groups.{group.name}: either models or --{_MODE}")
    words = [f"--model-repository={_absolute(path)}" for path in group.model_repository]
    words += [f"--{port}=0" for port in _PORTS if port not in typed]
    if _MODE not in typed:
        words.append(f"--{_MODE}=explicit")
        if group.models is None and "load-model" not in typed:
            words.append("--load-model=*")
    if "exit-on-error" not in typed:
        # a model that fails is no reason to take the others from a node
        words.append("--exit-on-error=false")
    if "exit-drain-secs" not in typed:
        # a replica that dies cannot drain its server before: proxies see that it goes
        words.append(f"--exit-drain-secs={_EXIT_DRAIN_S}")
    return words + list(group.options)


def stop_within_s(group: Group, words: list[str]) -> float:
    """Return the time that a server with these options takes to drain and stop, at most.

    Raises InvalidArgument for options that no server starts with.
    """
    options = read_options(words)
    if isinstance(options, int):
        raise InvalidArgument(f"groups.{group.name}: servers would not start with these options")
    return group.drain_within_s + options.exit_drain_secs + options.exit_timeout_secs


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).absolute())
