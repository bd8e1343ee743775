"""A server that this process owns, with the user's options and those that a fleet needs.

Server and process share a pipe, so the server stops in order when this process ends for any reason.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from zmqtriton.sdk.process import (
    Client,
    NoServerError,
    ServerSelector,
    read_options,
    runtime_places,
)
from zmqtriton.sdk.wire import InvalidArgument, Unavailable, ZmqTritonError
from zmqtriton_extras.fleet.announcing.announcement import STARTING
from zmqtriton_extras.fleet.serve.groups import Group
from zmqtriton_extras.fleet.servers import liveness
from zmqtriton_extras.fleet.servers.nodes import Node, node_of

_LOOK_EVERY_S = 0.1
#: Seconds for responses that a server has in memory; a stopped one never responds.
_ANSWER_WITHIN_S = 4.0
#: Beyond what a server takes by itself, before it is killed.
_MARGIN_S = 5.0
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
    """Return the options of each server, and the maximum time that it takes to drain and stop.

    Raises InvalidArgument, also for options with which no server starts.
    """
    chosen = {word.partition("=")[0].removeprefix("--") for word in group.options}
    if refused := chosen.intersection(_OWN):
        raise InvalidArgument(f"groups.{name}: --{min(refused)} is set by the fleet: remove it")
    if group.models is not None and _MODE in chosen:
        raise InvalidArgument(f"groups.{name}: use either models or --{_MODE}")
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
        raise InvalidArgument(
            f"groups.{name}: correct these options, servers would not start with them"
        )
    drain_s = options.value("exit_drain_secs") or 0
    return words, group.drain_within_s + drain_s + options.exit_timeout_secs


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).absolute())


class OwnedServer:
    def __init__(self, name: str, options: Sequence[str]) -> None:
        #: Directory in the runtime directory; the server creates and removes it.
        self._directory = runtime_places.preferred() / f"zmqtriton-{secrets.token_hex(8)}"
        self._announced = self._directory / "announcement.json"
        self._lock = threading.Lock()
        self._is_hung = self._is_stopping = False
        ours, self._owner = os.pipe()
        # an --id among the options comes later, and wins
        command = [sys.executable, "-m", "zmqtriton", f"--id={name}", *options]
        command += [
            f"--runtime-directory={self._directory}",
            f"--announce={self._announced}",
            f"--owner-descriptor={ours}",
        ]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=(ours,),
                # a signal to the group of this process is not for the server
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._owner)
            raise Unavailable(f"the server cannot be started, its log says why: {error}") from None
        finally:
            os.close(ours)

    def wait_until_open(self) -> None:
        """Wait until clients can connect, after the initial loads. Raises Unavailable."""
        while self.announcement().get("state", STARTING) == STARTING:
            if self._process.poll() is not None:
                raise Unavailable(f"the server {_describe_end(self._process.returncode)}")
            time.sleep(_LOOK_EVERY_S)

    def on_end(self, action: Callable[[str], None]) -> None:
        """Let a thread call `action`, with the reason, if the server ends by itself."""

        def watch() -> None:
            status = self._process.wait()
            if not self._is_stopping:
                action(f"the server {_describe_end(status)}")

        threading.Thread(target=watch, daemon=True, name="server-watch").start()

    def announcement(self) -> dict[str, Any]:
        """Return the server's last announcement; empty before the first."""
        with suppress(FileNotFoundError):
            document: dict[str, Any] = json.loads(self._announced.read_text("utf-8"))
            return document
        return {}

    @property
    def node(self) -> Node | None:
        """The server's address for clients; None without HTTP."""
        return node_of(self.announcement())

    def check(self) -> None:
        """Raise Unavailable unless supervisor and HTTP answer."""
        try:
            self._is_hung = False
            with self._connect() as client:
                client.call("is_open", timeout_s=_ANSWER_WITHIN_S)
            node = self.node
            if node is not None and not liveness.answers(node, _ANSWER_WITHIN_S):
                raise NoServerError(f"{node.url} does not answer; its log says why")
        except (NoServerError, OSError) as error:
            self._is_hung = True
            raise Unavailable(f"the server does not answer, its log says why: {error}") from None

    def load(self, model: str) -> None:
        """Load or reload a model. Raises ZmqTritonError, and NoServerError."""
        with self._connect() as client:
            client.call("load", {"model": model, "parameters": {}})

    def unload(self, model: str) -> None:
        with self._connect() as client:
            client.call("unload", {"model": model, "unload_dependents": False})

    def stop(self, drain_within_s: float, within_s: float) -> None:
        """Drain the server and stop it in order; kill it if it hangs or is too slow."""
        with self._lock:
            self._is_stopping = True
            end_s = time.monotonic() + within_s
            if self._process.poll() is None and not self._is_hung:
                self._drain(drain_within_s)
            if self._owner >= 0:
                os.close(self._owner)
                self._owner = -1
            left_s = 0.0 if self._is_hung else max(_MARGIN_S, end_s - time.monotonic())
            try:
                self._process.wait(left_s)
            except subprocess.TimeoutExpired:
                self._kill()

    def _drain(self, within_s: float) -> None:
        """Let proxies send no more requests, and wait until none arrive."""
        # one that does not drain stops all the same
        with suppress(NoServerError, OSError, ZmqTritonError), self._connect() as client:
            client.call("drain", {"model": "", "within_s": within_s}, within_s + _MARGIN_S)

    def _kill(self) -> None:
        """Kill all processes: stopped ones (SIGSTOP) do not notice that the supervisor ends."""
        for pid in [*_descendants(self._process.pid), self._process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def _connect(self) -> Client:
        return ServerSelector(directory=str(self._directory)).connect()


def _descendants(pid: int) -> list[int]:
    children: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            children += map(int, path.read_text().split())
    return [each for child in children for each in (*_descendants(child), child)]


def _describe_end(status: int) -> str:
    if status >= 0:
        return f"ended with {status}; its log says why"
    name = str(-status)
    with suppress(ValueError):
        name = signal.Signals(-status).name
    return f"was killed by {name}; its log says more"
