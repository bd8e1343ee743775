"""The options of a fleet's servers: the chosen ones, and those that a fleet needs beside them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from zmqtriton.command_line import read_options
from zmqtriton.repository import is_model_directory, subdirectories
from zmqtriton_floor.errors import InvalidArgument

#: Any free ports, since there may be several servers on a machine. Who has which is announced.
_PORTS = ("http-port", "grpc-port", "metrics-port")
_OWN = ("announce", "owner-descriptor", "runtime-directory")


def server_options(
    repositories: Sequence[str], placed: Collection[str], others: Sequence[str]
) -> list[str]:
    """Return the options of each server. Raises InvalidArgument.

    Models that are `placed` are loaded where the plan says; all others on each node at its start.
    """
    typed = {word.partition("=")[0].removeprefix("--") for word in others}
    if refused := typed.intersection(_OWN):
        raise InvalidArgument(f"--{min(refused)} is the fleet's own")
    paths = [path if "://" in path else str(Path(path).absolute()) for path in repositories]
    words = [f"--model-repository={path}" for path in paths]
    words += [f"--{port}=0" for port in _PORTS if port not in typed]
    if "model-control-mode" not in typed:
        words.append("--model-control-mode=explicit")
        if "load-model" not in typed:
            words += [f"--load-model={name}" for name in _models_of_all(paths, placed)]
    if "exit-on-error" not in typed:
        # a model that fails is no reason to take the others from a node
        words.append("--exit-on-error=false")
    words += others
    if isinstance(read_options(words), int):
        raise InvalidArgument("servers would not start with these options")
    return words


def _models_of_all(paths: Sequence[str], placed: Collection[str]) -> list[str]:
    """Return the models that each server loads at its start."""
    if not placed:
        return ["*"]
    names = {name for path in paths for name in _models_in(path)}
    if missing := sorted(set(placed) - names):
        raise InvalidArgument(f"no repository has the model '{missing[0]}'")
    return sorted(names - set(placed))


def _models_in(path: str) -> Iterator[str]:
    directory = Path(path)
    if not directory.is_dir():
        raise InvalidArgument(
            f"{path} is not a directory here, so it is not known which models the others are: "
            "name them by --load-model"
        )
    for child in subdirectories(directory):
        if is_model_directory(child, subdirectories(child)):
            yield child.name
