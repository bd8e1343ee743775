"""The door: clients on this machine ask over ZeroMQ, in any language. The protocol is docs/door.md.

What both ends share stands here; `process/` is the server's end, `client/` our own client.
"""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Option, Process

ADDON = AddOn(
    "door",
    title="ZeroMQ",
    options=(
        Option(
            "zmq-door",
            bool,
            False,
            "Serve clients on this machine over ZeroMQ, at the socket 'door' in the runtime "
            "directory.",
        ),
        Option(
            "zmq-door-group",
            str,
            "",
            "Group whose members may connect, besides the server's own user; it may enter the "
            "runtime directory.",
            requires="zmq-door",
        ),
        Option(
            "zmq-door-restricted",
            ".restrictions:read",
            (),
            "Require this key and value for these verbs, separated by commas. The value @FILE is "
            "read from a file; without a slash it names a systemd credential. May be repeated. "
            "Names: health, metadata, inference, shared-memory, model-config, model-repository, "
            "statistics, trace, logging.",
            "verbs:key=value",
            repeats=True,
            requires="zmq-door",
            is_secret=True,
        ),
    ),
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
