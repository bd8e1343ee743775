"""Starts NVIDIA's MPS control daemon, asks it for its clients, and ends it.

The daemon leaves its parent. A guard, a shell that reads a pipe, ends it when the supervisor closes
the pipe or dies. If both are killed, the next server finds the directory of the dead one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

_CONTROL = "nvidia-cuda-mps-control"
_GUARD = f'read _; echo quit | {_CONTROL}; rm -rf "$0"'
_WITHIN_S = 20.0
_ERRORS = (OSError, subprocess.SubprocessError)


class Started(NamedTuple):
    """The outcome of a start."""

    guard: subprocess.Popen[bytes] | None
    problem: str = ""


def directory_of(pid: int = 0, parent: str = "") -> Path:
    """Return the directory of a server's daemon."""
    return Path(
        parent or tempfile.gettempdir(), f"zmqtriton-mps-{os.getuid()}-{pid or os.getpid()}"
    )


def variables(directory: Path) -> dict[str, str]:
    """Return the variables that lead clients to the daemon."""
    return {
        "CUDA_MPS_PIPE_DIRECTORY": str(directory / "pipe"),
        "CUDA_MPS_LOG_DIRECTORY": str(directory / "log"),
    }


def start(directory: Path) -> Started:
    """Start the daemon, after the daemons of dead servers have ended."""
    guard = None
    try:
        for left in directory.parent.glob(f"{directory.name.rpartition('-')[0]}-*"):
            if not Path("/proc", left.name.rpartition("-")[2]).exists():
                ask(left, "quit")
                shutil.rmtree(left)
        for folder in (directory, directory / "pipe", directory / "log"):
            folder.mkdir(0o700)
        environment = {**os.environ, **variables(directory)}
        guard = subprocess.Popen(
            ["sh", "-c", _GUARD, str(directory)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        command = [_CONTROL, "-d"]
        subprocess.run(
            command, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=_WITHIN_S
        )
    except _ERRORS as error:
        if guard is not None:
            end(guard)
            guard.wait(_WITHIN_S)
        return Started(None, f"the MPS control daemon cannot be started: {error}")
    return Started(guard)


def ask(directory: Path, command: str) -> str:
    """Return the daemon's answer to a command. Raises OSError, SubprocessError."""
    environment = {**os.environ, **variables(directory)}
    return subprocess.run(
        [_CONTROL],
        input=f"{command}\n",
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_WITHIN_S,
    ).stdout


def read_clients(directory: Path) -> tuple[int, ...]:
    """Return the pids of the daemon's clients; none if it does not answer."""
    try:
        servers = ask(directory, "get_server_list").split()
        answers = [ask(directory, f"get_client_list {server}") for server in servers]
        return tuple(int(word) for answer in answers for word in answer.split())
    except (*_ERRORS, ValueError):
        return ()


def end(guard: subprocess.Popen[bytes]) -> None:
    """Let the guard end the daemon, which waits for its clients."""
    assert guard.stdin is not None
    guard.stdin.close()
