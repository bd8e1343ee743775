"""The server that this one takes over from: found by the ports of this server, and its sockets.

This server asks it before it starts anything. The predecessor continues unchanged if anything
fails before its order to leave.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

from zmqtriton import control_client, systemd
from zmqtriton.options import Options
from zmqtriton.runtime_places import named_directory
from zmqtriton.start.listeners import BoundSocket, PortError, served_ports
from zmqtriton.start.ports import is_used
from zmqtriton_floor.errors import ZmqTritonError

#: Seconds for an answer of the predecessor; it answers from memory, but late on a busy machine.
_WITHIN_S = 30.0
#: The options that say how long a server takes to end.
_UNTIL_ITS_END = ("exit-timeout-secs", "exit-drain-secs")
#: Warning before a take-over, about the state that each server has for itself.
_BEGINS_ANEW = (
    "metrics, response caches and limits on rates (executions and requests per second, wrong "
    "tokens) begin anew; while both servers answer, each keeps to a rate by itself"
)

_log = logging.getLogger(__name__)


Predecessor = control_client.Client


def take_over(options: Options) -> tuple[Predecessor | None, dict[str, BoundSocket]]:
    """Return the server to take over from, and copies of its listening sockets by role.

    None if no server has the ports of this one, or its named directory. A server that is ending is
    waited for. Raises PortError if several servers have them, or if a server that may have them
    does not answer.
    """
    has_refused = False
    while (predecessor := _find(options)) is not None:
        if predecessor.identity.is_stopping:
            _await_end(predecessor)
            continue
        try:
            sockets = _take_sockets(predecessor)
        except (control_client.NoServerError, ZmqTritonError) as error:
            name = f"server {predecessor.describe()}"
            predecessor.close()
            if has_refused:
                raise PortError(f"{name} gives no sockets, stop it first: {error}") from error
            has_refused = True  # it may have begun to end since it has said that it serves
            continue
        _log.info("--take-over: this server takes over from %s", predecessor.describe())
        _log.info("--take-over: %s", _BEGINS_ANEW)
        if options.allow_grpc and options.grpc_transport != "native":
            _log.warning(
                "--take-over: %s",
                "grpcio gives no sockets: gRPC calls that reach the old server in the moment when "
                "it stops may fail, if clients do not repeat them, and sequences over several "
                "calls that are open ten seconds later are cut; --grpc-transport=native loses none",
            )
        return predecessor, sockets
    _log.info("--take-over: no server has these ports, so none is replaced")
    return None, {}


def _await_end(predecessor: Predecessor) -> None:
    """Wait until a server that is ending has ended. Raises PortError if it takes too long."""
    name = predecessor.identity.describe()
    _log.info("--take-over: %s is ending, so this server waits, and takes its ports then", name)
    with predecessor:
        try:
            rows = predecessor.call("options", timeout_s=_WITHIN_S)
            within_s = sum(float(row["value"]) for row in rows if row["option"] in _UNTIL_ITS_END)
            predecessor.finish(within_s + _WITHIN_S)  # nothing comes but its end
        except control_client.NoServerError as silence:
            if not predecessor.line.ended:
                raise PortError(
                    f"--take-over: server {name} is ending, and has not ended in time"
                ) from silence


def _take_sockets(predecessor: Predecessor) -> dict[str, BoundSocket]:
    predecessor.begin("succession.sockets", {"invocation": systemd.invocation(os.environ)})
    roles, descriptors = predecessor.finish_with_descriptors(_WITHIN_S)
    return {
        role: BoundSocket(role, socket.socket(fileno=number), is_passed)
        for (role, is_passed), number in zip(roles, descriptors, strict=True)
    }


def find_served_ports() -> set[int]:
    """Return the ports of all servers that this process can ask, by their own words."""
    clients = _connect_all()
    try:
        return {
            int(number)
            for client in clients
            if not client.is_unknown
            for address in client.identity.addresses.values()
            if (number := address.rpartition(":")[2]).isdecimal()
        }
    finally:
        for client in clients:
            client.close()


def _connect_all() -> list[control_client.Client]:
    """Return all servers that can be connected to, with the identities of those that answer."""
    try:
        clients = control_client.ServerSelector().connect_all()
    except control_client.NoServerError:
        return []
    control_client.Client.identify_all(clients, _WITHIN_S)
    return clients


def _find(options: Options) -> Predecessor | None:
    """Return the server with these ports or this directory; a stopping one if it is alone."""
    numbers = served_ports(options)
    # a bare number may also be the pid of another server, or its id
    ports = [f":{port}" for port in numbers]
    named = named_directory(options.runtime_directory)
    directory = Path(named).absolute() if named else None

    def is_there(client: control_client.Client) -> bool:
        return directory in (client.directory, client.directory.parent)

    clients = _connect_all()
    meant = [
        client
        for client in clients
        if not client.is_unknown and (is_there(client) or any(map(client.matches, ports)))
    ]
    holders = [each for each in meant if not each.identity.is_stopping] or meant[:1]
    silent = [client for client in clients if client.is_unknown and not client.line.ended]
    for client in clients:
        if client not in holders or len(holders) > 1:
            client.close()
    if len(holders) > 1:
        names = ", ".join(client.describe() for client in holders)
        raise PortError(f"--take-over: several servers have these ports, stop all but one: {names}")
    if holders:
        return holders[0]
    used = next((f"port {number}" for number in numbers if is_used(number)), "")
    for client in silent:
        if place := used or (f"'{directory}'" if is_there(client) else ""):
            raise PortError(
                f"--take-over: {place} is in use, and the old server in {client.directory} does "
                f"not answer: {client.silence}; stop it first"
            )
    return None
