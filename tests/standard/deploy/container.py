"""A real server with the arguments of a container, and the programs that run beside it in there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.server import Server


class Container(Server):
    """A server as an image starts it, with a directory and ports of the test's own.

    `paths` says what stands for the container's paths; `ports` are its ports for HTTP, gRPC and
    metrics, as the arguments say them or as they are by default. Nothing is left out.
    """

    def __init__(
        self,
        directory: Path,
        arguments: Sequence[str],
        paths: Mapping[str, Path],
        ports: Sequence[int] = (8000, 8001, 8002),
    ) -> None:
        self._runtime = directory / "run" / "server"
        environment = {"RUNTIME_DIRECTORY": str(self._runtime)}
        super().__init__(directory, ["add_sub"], environment=environment, stub_user="")
        own = (self.http_port, self.grpc_port, self.metrics_port)
        port_options = [
            f"--{name}-port={port}"
            for name, port in zip(("http", "grpc", "metrics"), ports, strict=True)
        ]
        assert not [word for word in arguments if "-port=" in word and word not in port_options]
        words = [_moved(word, paths) for word in arguments if word not in port_options]
        self._words = [
            *words,
            *(
                f"{option.partition('=')[0]}={port}"
                for option, port in zip(port_options, own, strict=True)
            ),
        ]

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "zmqtriton", *self._words]

    def begin(self, command: Sequence[str]) -> subprocess.Popen[str]:
        """Start a program of the image in the container."""
        assert command[0] == "zmqtriton-ctl"
        where = ["--runtime-directory", str(self._runtime)]
        words = [sys.executable, "-m", "zmqtriton.ctl.main", *where, *command[1:]]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _moved(argument: str, paths: Mapping[str, Path]) -> str:
    for path, place in paths.items():
        argument = argument.replace(path, str(place))
    return argument
