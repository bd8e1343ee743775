"""The list of a process's connections for operators, by client, and how to end some of them."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unsupported
from zmqtriton_floor.hosts import ip_of
from zmqtriton_frontends.process.room import Occupant

#: Tells by the values of a request whether it must end.
IsMeant = Callable[[Sequence[str]], bool]


class OpenConnection(Occupant, Protocol):
    """One connection of a client."""

    @property
    def requests(self) -> int:
        """Return the number of requests that have arrived on the connection."""

    @property
    def received_bytes(self) -> int:
        """Return the number of bytes that have arrived on the connection."""

    def authorizations(self) -> Iterable[Sequence[str]]:
        """Return the `authorization` values that the client has sent.

        One sequence of values for each request in progress, or else the last request's.
        """

    def throw_out(self, is_meant: IsMeant) -> None:
        """End the requests with meant values now, and the connection after its last request."""


def answer(
    call: wire.Call,
    protocol: str,
    connections: Iterable[OpenConnection],
    name_of: Callable[[Sequence[str]], str],
) -> wire.CallResult:
    """Answer a supervisor's call with a row for each client; end their connections if asked to.

    `name_of` returns the name of a token by the values of a request, "" if unknown.
    """
    if call.verb != "connections":
        return wire.CallResult(call.id, Unsupported.number, f"no call '{call.verb}' here", "null")
    arguments = json.loads(call.arguments)
    address, token = arguments.get("address", ""), arguments.get("token", "")
    network = ipaddress.ip_network(address, strict=False) if address else None

    def is_meant(values: Sequence[str]) -> bool:
        return not token or name_of(values) == token

    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for connection in connections:
        meant = [*filter(is_meant, connection.authorizations())]
        place = connection.client.place
        ip = ip_of(place)  # None: it is unknown
        if (network and (ip is None or ip not in network)) or (token and not meant):
            continue
        names = ", ".join(sorted({*map(name_of, meant)} - {""}))
        row = rows.setdefault(
            (place, names),
            {"protocol": protocol, "address": place, "token": names}
            | {"connections": 0, "busy": 0, "requests": 0, "received_bytes": 0},
        )
        row["connections"] += 1
        row["busy"] += 0 if connection.is_idle else len(meant)
        row["requests"] += connection.requests
        row["received_bytes"] += connection.received_bytes
        if arguments.get("end"):
            connection.throw_out(is_meant)
    return wire.CallResult(call.id, 0, "", json.dumps([*rows.values()]))
