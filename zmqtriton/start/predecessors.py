"""The server that this one takes over from: found by the ports of this server, and its sockets.

This server asks it before it starts anything. The predecessor continues unchanged if anything
fails before its order to leave.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

from zmqtriton import control_client as control
from zmqtriton import systemd
from zmqtriton.options import Options
from zmqtriton.runtime_places import named_directory
from zmqtriton.start.listeners import BoundSocket, PortError, served_ports
from zmqtriton.start.ports import is_used
from zmqtriton_floor.errors import ZmqTritonError

#: Seconds for an answer of the predecessor; it answers from memory, but late on a busy machine.
_WITHIN_S = 30.0
#: Warning before a take-over, about the state that each server has for itself.
_BEGINS_ANEW = (
    "metrics, response caches and limits on rates (executions and requests per second, wrong "
    "tokens) begin anew; while both servers answer, each keeps to a rate by itself"
)
_LOST_BY_GRPCIO = (
    "grpcio gives no sockets: gRPC calls that reach the old server in the moment when it stops may "
    "fail, if clients do not repeat them, and sequences over several calls that are open ten "
    "seconds later are cut; --grpc-transport=native loses none"
)

_log = logging.getLogger(__name__)


Predecessor = control.Client


def take_sockets(predecessor: Predecessor) -> dict[str, BoundSocket]:
    """Return copies of its listening sockets by role. Raises PortError."""
    predecessor.begin("succession.sockets", {"invocation": systemd.invocation(os.environ)})
    try:
        roles, descriptors = predecessor.finish_with_descriptors(_WITHIN_S)
    except (control.NoServerError, ZmqTritonError) as error:
        name = f"server {predecessor.identity.describe()}"
        raise PortError(f"{name} gives no sockets: {error}") from error
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


def _connect_all() -> list[control.Client]:
    """Return all servers that can be connected to, with the identities of those that answer."""
    try:
        clients = control.connect_all()
    except control.NoServerError:
        return []
    control.identify(clients, _WITHIN_S)
    return clients


def find(options: Options) -> Predecessor | None:
    """Return the server that has the ports of this one, or the directory that is named for it.

    None if no server has. Raises PortError if several have, or if one that may does not answer.
    """
    numbers = served_ports(options)
    # a bare number may also be the pid of another server, or its id
    ports = [f":{port}" for port in numbers]
    named = named_directory(options.runtime_directory)
    directory = Path(named).absolute() if named else None

    def is_meant(client: control.Client) -> bool:
        if client.is_unknown or client.identity.is_stopping:
            return False
        is_there = directory in (client.directory, client.directory.parent)
        return is_there or any(map(client.matches, ports))

    clients = _connect_all()
    holders = [client for client in clients if is_meant(client)]
    for client in clients:
        if client not in holders or len(holders) > 1:
            client.close()
    if len(holders) > 1:
        names = ", ".join(client.describe() for client in holders)
        raise PortError(f"--take-over: several servers have these ports: {names}")
    if not holders:
        used = [number for number in numbers if is_used(number)]
        for client in clients:
            is_named = directory in (client.directory, client.directory.parent)
            if client.is_unknown and (used or is_named):
                where = f"port {used[0]} is in use" if used else f"'{directory}' is in use"
                raise PortError(
                    f"--take-over: {where}, and the old server in {client.directory} does not "
                    f"answer: {client.silence}"
                )
        _log.info("--take-over: no server has these ports, so none is replaced")
        return None
    _log.info("--take-over: this server takes over from %s", holders[0].describe())
    _log.info("--take-over: %s", _BEGINS_ANEW)
    if options.allow_grpc and options.grpc_transport != "native":
        _log.warning("--take-over: %s", _LOST_BY_GRPCIO)
    return holders[0]
