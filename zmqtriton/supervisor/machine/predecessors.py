"""The server that this one takes over from: found by the ports of this server, and its sockets.

Asked before anything is started; whatever goes wrong until it is told to leave, it goes on as if
nobody had asked.
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
from zmqtriton.supervisor.machine.listeners import BoundSocket, PortError, served_ports
from zmqtriton_floor.lifeline import Lifeline
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

    @property
    def line(self) -> Lifeline:
        """The way to it, for as long as it lives."""
        return self._client.line

    @property
    def pid(self) -> int:
        return self._client.identity.pid

    @property
    def _name(self) -> str:
        return f"server {self._client.identity.describe()}"


def find(options: Options) -> Predecessor | None:
    """Return the server that has the ports of this one; None if nobody has them.

    Raises PortError if several have.
    """
    ports = [str(port) for port in served_ports(options)]
    try:
        clients = control.connect_all()
    except control.NoServerError:
        clients = []
    control.identify(clients)
    holders = [client for client in clients if any(map(client.matches, ports))]
    for client in clients:
        if client not in holders or len(holders) > 1:
            client.close()
    if len(holders) > 1:
        names = ", ".join(client.describe() for client in holders)
        raise PortError(f"--take-over: several servers have these ports: {names}")
    if not holders:
        _log.info("--take-over: no server has these ports, so none is replaced")
        return None
    _log.info("--take-over: this server takes over from %s", holders[0].describe())
    return Predecessor(holders[0])


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
