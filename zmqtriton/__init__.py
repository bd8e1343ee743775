"""The server's two daemons, supervisor and broker, and its command lines.

Nothing outside this package imports it: the other processes know the wire alone. The version
lives in the floor, which every interpreter has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zmqtriton_floor import __version__ as __version__
from zmqtriton_floor.lazy_names import lazy_names

if TYPE_CHECKING:
    from zmqtriton.door import Door as Door
    from zmqtriton.embedded.connection import connect as connect
    from zmqtriton.embedded.server import Server as Server
else:
    __getattr__ = lazy_names(
        __name__, {"door": "Door", "embedded.connection": "connect", "embedded.server": "Server"}
    )
