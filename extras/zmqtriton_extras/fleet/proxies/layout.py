"""The layout of a proxy: its ports, the servers behind it, and the distribution of requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from zmqtriton.sdk.wire import InvalidArgument, is_loopback
from zmqtriton_extras.fleet.servers.nodes import Node

_PLAIN_MODEL = re.compile(r"[A-Za-z0-9._~-]+")
#: A server gets no more by affinity than this share of the mean, in percent.
BALANCE_FACTOR = 150
#: The header that has the host of a call over gRPC, perhaps with a port.
AUTHORITY = ":authority"


def is_plain(model: str) -> bool:
    """Return whether a model's name can be used in paths and configurations unchanged."""
    return _PLAIN_MODEL.fullmatch(model) is not None


class Group(NamedTuple):
    """Servers with a common probe of a model or of the server, which share requests."""

    #: Name within the proxy, of letters, digits and underscores.
    name: str
    #: The model whose readiness counts; "" for that of the server.
    model: str
    nodes: tuple[Node, ...]

    @property
    def probe_path(self) -> str:
        return f"/v2/models/{self.model}/ready" if self.model else "/v2/health/ready"

    @property
    def own_host(self) -> str:
        """Return the `Host` of HTTP requests to these servers; "" keeps the client's.

        A server on loopback must be addressed by its own name, since it refuses others. A proxy
        does not know the server yet when it writes the header, so there is one for the group: other
        servers accept addresses as well.
        """
        return next((node.http for node in self.nodes if _is_on_loopback(node.http)), "")

    def has_tls(self, service: str) -> bool:
        """True if the servers use TLS.

        Raises InvalidArgument if only some servers use it, which few proxies support.
        """
        answers = {service in node.tls for node in self.nodes}
        if len(answers) > 1:
            raise InvalidArgument(
                f"some servers have TLS for {service}, and some have none: name all in one way"
            )
        return True in answers


class Layout(NamedTuple):
    nodes: tuple[Node, ...]
    #: Models that have their own health checks.
    models: tuple[str, ...]
    #: HOST:PORT of each; "" for none.
    http: str
    grpc: str
    statistics: str
    #: Requests with an equal value of this header go to the same server.
    sequence_header: str
    #: Header of affinity: other requests with an equal value of it also go to the same server,
    #: unless that server is too busy; "" for none.
    affinity_header: str = ""
    #: Requests over gRPC that have a model's name in this header go to servers with that model.
    model_header: str = ""
    #: Requests over gRPC to the authority MODEL.DOMAIN go to servers with that model.
    model_domain: str = ""
    #: PEM file with certificate and key for clients; "" for no TLS.
    certificate: str = ""
    #: PEM file with the authorities of the servers' certificates; "" for those of the system.
    server_ca: str = ""
    #: The name in the servers' certificates; "" for each server's own host.
    server_name: str = ""
    #: Headers of health checks.
    probe_headers: tuple[tuple[str, str], ...] = ()
    #: A request may be executed twice, if the server that had it has died.
    may_repeat: bool = False
    #: Path of the socket for commands to the proxy; "" for none.
    socket: str = ""

    def model_groups(self) -> Iterator[Group]:
        """Yield a group for each model: the servers that should have the model."""
        for number, model in enumerate(self.models, 1):
            yield Group(f"model_{number}", model, tuple(n for n in self.nodes if n.has(model)))

    @property
    def http_group(self) -> Group:
        return Group("http_servers", "", self.nodes)

    def http_groups(self) -> list[Group]:
        """Return the groups of the models, and last the group for everything else."""
        return [*self.model_groups(), self.http_group]

    @property
    def grpc_group(self) -> Group:
        return Group("grpc_servers", "", _with_grpc(self.nodes))

    def grpc_model_groups(self) -> list[Group]:
        """Return the groups of the models for gRPC, where a header can name the model."""
        if not self.model_header and not self.model_domain:
            return []
        return [
            group._replace(name=f"grpc_{group.name}", nodes=_with_grpc(group.nodes))
            for group in self.model_groups()
        ]

    def grpc_rules(self) -> Iterator[tuple[str, str, Group]]:
        """Yield header, value and group: gRPC requests with this header go to the group.

        The first match counts.
        """
        groups = self.grpc_model_groups()
        if self.model_header:
            yield from ((self.model_header, group.model, group) for group in groups)
        if self.model_domain:
            yield from (
                (AUTHORITY, f"{group.model}.{self.model_domain}", group) for group in groups
            )

    def grpc_groups(self) -> list[Group]:
        return [*self.grpc_model_groups(), self.grpc_group]


def _with_grpc(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    return tuple(node for node in nodes if node.grpc)


def _is_on_loopback(address: str) -> bool:
    host, _ = split_address(address)
    return is_loopback(host.lower())


def split_address(address: str) -> tuple[str, int]:
    """Return the host without brackets, and the port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
