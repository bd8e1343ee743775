"""The door: clients on this machine call models over ZeroMQ. The protocol is in docs/door.md.

This package has the code that both ends share; `process/` is the server's end, `client/` our own
client.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from zmqtriton.sdk import AddOn, Option, Process


class DoorOptions(NamedTuple):
    zmq_door: Annotated[
        bool,
        Option(
            "Serve clients on this machine over ZeroMQ, at the socket 'door' in the runtime "
            "directory."
        ),
    ] = False
    zmq_door_group: Annotated[
        str,
        Option(
            "Group whose members may connect, besides the server's own user; it may enter the "
            "runtime directory.",
            requires="zmq-door",
        ),
    ] = ""
    zmq_door_restricted: Annotated[
        tuple[Any, ...],
        Option(
            "Require this key and value for these verbs, separated by commas. The value @FILE is "
            "read from a file; without a slash it names a systemd credential. May be repeated. "
            "Names: health, metadata, inference, shared-memory, model-config, model-repository, "
            "statistics, trace, logging.",
            read=".restrictions:read",
            metavar="verbs:key=value",
            requires="zmq-door",
            is_secret=True,
        ),
    ] = ()


ADDON = AddOn(
    "door",
    title="ZeroMQ",
    options=DoorOptions,
    process=Process(
        ".process",
        on="zmq-door",
        title="Door",
        is_serving=True,
        group="zmq-door-group",
        restrictions="zmq-door-restricted",
    ),
    public={"door": ".client", "Door": ".client.connection:Door"},
    offers={
        "options.behind": "GRPC",
    },
)
