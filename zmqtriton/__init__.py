"""The server's two daemons, supervisor and broker, and its command lines.

Nothing outside this package imports it: the other processes know the wire alone. The version
lives in the floor, which every interpreter has; it is looked up here only when asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zmqtriton.door.connection import Door as Door
    from zmqtriton.embedded.connection import connect as connect
    from zmqtriton.embedded.server import Server as Server


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from zmqtriton_floor import __version__

        return __version__
    if name == "Server":
        from zmqtriton.embedded.server import Server

        return Server
    if name == "Door":
        from zmqtriton.door.connection import Door

        return Door
    if name == "connect":
        from zmqtriton.embedded.connection import connect

        return connect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
