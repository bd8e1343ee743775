"""The server that this one takes over from: its sockets, and the word that it may go.

Found by the ports of this server. Asked before anything is started; whatever goes wrong until it is
told to leave, it goes on as if nobody had asked.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

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

    def begin_asking(self) -> Lifeline:
        """Ask for the calls to repeat; the answer comes on the returned lifeline."""
        self._client.begin("succession.calls")
        return self._client.line

    def leave(self) -> None:
        """Tell it that this server serves, if it still lives."""
        _log.info("this server serves in place of %s", self._name)
        self._client.begin("succession.leave")

    @property
    def _name(self) -> str:
        return f"server {self._client.identity.describe()}"


class Watched:
    """A predecessor that is asked in the loop of this server, or nobody."""

    def __init__(self, server: Predecessor | None, selector: selectors.BaseSelector) -> None:
        self._server = server
        self._selector = selector

    def ask_calls(self, then: Callable[[list[Any]], None]) -> None:
        """Pass the calls to repeat to `then`; none if it has ended."""
        if self._server is None:
            then([])
            return
        line = self._server.begin_asking()

        def read() -> None:
            results = [message for message, _ in line.receive() if isinstance(message, CallResult)]
            if results or line.ended:
                self._selector.unregister(line)
                calls = [] if not results or results[-1].code else json.loads(results[-1].result)
                then(calls)

        self._selector.register(line, selectors.EVENT_READ, read)

    def leave(self) -> None:
        if self._server is not None:
            self._server.leave()


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
    return Predecessor(holders[0])


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
