"""The server's TCP sockets, bound at start so that a port in use is an error at once.

Nothing listens here: HTTP and metrics get their bound socket and listen when the server opens; gRPC
binds for itself, and the socket here reserves the port meanwhile.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from enum import Enum

from zmqtriton.options import Options
from zmqtriton.supervisor.machine.processes.port_holder import describe_listener

HTTP = "http-arbiter"
#: Served by the processes of HTTP.
SAGEMAKER, VERTEX_AI = "sagemaker", "vertex-ai"
GRPC = "grpc"
METRICS = "metrics"
#: Served by the process of metrics.
AGENT_CHECK = "agent-check"
DOOR = "door"


class PortError(Exception):
    """Raised when the server cannot have a port; the text is for whoever started it."""


class PortSharing(Enum):
    """With whom a port is shared; the kernel then spreads connections over all listeners."""

    NOBODY = 0
    #: several processes of this server
    OWN_PROCESSES = 1
    #: also other servers of this user that share it, too
    OTHER_SERVERS = 2


@dataclass(frozen=True)
class BoundSocket:
    """A bound socket and its purpose."""

    role: str
    socket: socket.socket

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])


def bind_all(options: Options) -> dict[str, BoundSocket]:
    """Bind all sockets and return them by role.

    Raises PortError; then nothing stays bound.
    """
    wanted = [
        (options.allow_http, HTTP, "HTTP", options.http_address, options.http_port),
        (options.allow_grpc, GRPC, "GRPC", options.grpc_address, options.grpc_port),
        (
            options.allow_metrics,
            METRICS,
            "Metrics",
            options.metrics_address or options.http_address,
            options.metrics_port,
        ),
        (
            options.agent_check_port is not None,
            AGENT_CHECK,
            "Agent Check",
            options.metrics_address or options.http_address,
            options.agent_check_port or 0,
        ),
        (
            options.allow_sagemaker,
            SAGEMAKER,
            "Sagemaker",
            options.http_address,
            options.sagemaker_port,
        ),
        (
            options.allow_vertex_ai,
            VERTEX_AI,
            "Vertex AI",
            options.http_address,
            options.vertex_ai_port,
        ),
    ]
    #: Which ports are shared, and with whom.
    sharing = {GRPC: PortSharing.OWN_PROCESSES}
    if options.reuse_http_port:
        sharing[HTTP] = PortSharing.OTHER_SERVERS
    if options.reuse_grpc_port:
        sharing[GRPC] = PortSharing.OTHER_SERVERS
    listeners: dict[str, BoundSocket] = {}
    try:
        for is_wanted, role, service, address, port in wanted:
            if is_wanted:
                bound = _bind(service, address, port, sharing.get(role, PortSharing.NOBODY))
                listeners[role] = BoundSocket(role, bound)
    except PortError:
        close_all(listeners)
        raise
    return listeners


def _bind(service: str, address: str, port: int, sharing: PortSharing) -> socket.socket:
    try:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise PortError(_refusal(service, f"unable to resolve '{address}': {error}")) from error
    family, kind, protocol, _, where = found[0]
    held = socket.socket(family, kind, protocol)
    try:
        if sharing is PortSharing.OWN_PROCESSES:
            # A port that others share would be bound without complaint, so it is tried exclusively
            # first.
            with socket.socket(family, kind, protocol) as probe:
                _bind_exclusively(probe, where)
                where = probe.getsockname()
        if sharing is not PortSharing.NOBODY:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        _bind_exclusively(held, where)
    except OSError as error:
        held.close()
        text = f"unable to bind '{address}:{port}': {error.strerror}"
        if error.errno == errno.EADDRINUSE:
            holder = describe_listener(port)
            text = f"Socket '{address}:{port}' already in use " + (holder and f"by {holder}")
        raise PortError(_refusal(service, text)) from error
    return held


def _bind_exclusively(bound: socket.socket, where: tuple[object, ...]) -> None:
    """Bind, even with connections of an earlier server in TIME_WAIT.

    The option is cleared afterwards, so that nobody else can bind although nothing listens yet.
    """
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(where)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)


def _refusal(service: str, text: str) -> str:
    return f"failed to start {service} service: Unavailable - {text}"


def allow_address_reuse(listeners: dict[str, BoundSocket]) -> None:
    """Allow the next server to bind while accepted connections exist.

    To be set before they listen.
    """
    for listener in listeners.values():
        listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def close_all(listeners: dict[str, BoundSocket]) -> None:
    for listener in listeners.values():
        listener.socket.close()
