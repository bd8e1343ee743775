"""The door: clients on this machine ask over ZeroMQ, in any language. The protocol is docs/door.md.

What both ends share stands here; `process/` is the server's end, `client/` our own client.
"""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Process

ADDON = AddOn(
    "door",
    process=Process(
        ".process",
        on="zmq-door",
        title="Door",
        is_serving=True,
        group="zmq-door-group",
        restrictions="zmq-door-restricted",
    ),
)
