"""A server inside the user's own process, and models to ask without HTTP.

`zmqtriton.Server` starts a server and ends it, `zmqtriton.connect` finds one that runs; both take
part in it as a frontend of their own, on a thread with an asyncio loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "connection": "Connection connect",
    "hosted_process": "report",
    "model": "Model",
    "requests": "InferenceRequest InferenceResponse",
    "server": "Server command_words",
}

if TYPE_CHECKING:
    from zmqtriton.embedded.connection import Connection, connect
    from zmqtriton.embedded.hosted_process import report
    from zmqtriton.embedded.model import Model
    from zmqtriton.embedded.requests import InferenceRequest, InferenceResponse
    from zmqtriton.embedded.server import Server, command_words
else:
    __getattr__ = lazy_names(__name__, _NAMES)
