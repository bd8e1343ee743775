"""The server that this one takes over from: its sockets, and the word that it may go.

Found by the ports of this server. Asked before anything is started; whatever goes wrong until it is
told to leave, it goes on as if nobody had asked.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Iterable

from zmqtriton.control_client import client as control
from zmqtriton.options import Options
from zmqtriton.supervisor.machine.listeners import BoundSocket, PortError
from zmqtriton_floor.wire import CallResult

#: It answers from memory, on a busy machine late.
_WITHIN_S = 30.0

_log = logging.getLogger(__name__)


class Predecessor:
    def __init__(self, client: control.Client) -> None:
        self._client = client

    def take_sockets(self) -> dict[str, BoundSocket]:
        """Return copies of its listening sockets by role. Raises PortError."""
        self._client.begin("succession.sockets")
        deadline_s = time.monotonic() + _WITHIN_S
        line = self._client.line
        while not line.ended and line.wait(max(0.0, deadline_s - time.monotonic())):
            for message, descriptors in line.receive():
                if not isinstance(message, CallResult):
                    _close(descriptors)
                elif message.code:
                    raise PortError(f"{self._name} gives no sockets: {message.text}")
                else:
                    roles = json.loads(message.result)
                    sockets = [socket.socket(fileno=number) for number in descriptors]
                    return {r: BoundSocket(r, s) for r, s in zip(roles, sockets, strict=True)}
        raise PortError(f"{self._name} gives no sockets: it does not answer")

    def leave(self) -> None:
        """Tell it that this server serves, if it still lives."""
        _log.info("this server serves in place of %s", self._name)
        self._client.begin("succession.leave")

    @property
    def _name(self) -> str:
        return f"server {self._client.identity.describe()}"


def find(options: Options) -> Predecessor | None:
    """Return the server that has the ports of this one; None if nobody has them.

    Raises PortError if several have.
    """
    ports = _ports(options)
    try:
        clients = control.connect_all()
    except control.NoServerError:
        clients = []
    control.identify(clients)
    named = [client for client in clients if any(map(client.matches, ports))]
    for client in clients:
        if client not in named or len(named) > 1:
            client.close()
    if len(named) > 1:
        names = ", ".join(client.describe() for client in named)
        raise PortError(f"--take-over: several servers have these ports: {names}")
    if not named:
        _log.info("--take-over: no server has these ports, so none is replaced")
        return None
    return Predecessor(named[0])


def _ports(options: Options) -> list[str]:
    services = (
        (options.allow_http, options.http_port),
        (options.allow_grpc, options.grpc_port),
        (options.allow_metrics, options.metrics_port),
    )
    return [str(port) for is_served, port in services if is_served]


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
