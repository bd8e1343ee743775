"""The way from a frontend to the broker and the supervisor, and back."""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "control_calls": "on_behalf_of",
    "gateway": "Gateway",
    "loads": "load",
    "pending": "Pending Sender Sink",
    "readiness": "Readiness",
    "streams": "StreamItem",
}

if TYPE_CHECKING:
    from zmqtriton_frontends.gateway.control_calls import on_behalf_of
    from zmqtriton_frontends.gateway.gateway import Gateway
    from zmqtriton_frontends.gateway.loads import load
    from zmqtriton_frontends.gateway.pending import Pending, Sender, Sink
    from zmqtriton_frontends.gateway.readiness import Readiness
    from zmqtriton_frontends.gateway.streams import StreamItem
else:
    __getattr__ = lazy_names(__name__, _NAMES)
