"""The setting up of a frontend's process: its allocator, TLS, codecs and its request log."""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "allocator": "unused_of",
    "arrivals": "Arrivals",
    "client_progress": "ClientProgress",
    "futures": "Tasks wake",
    "room": "max_connections",
    "ledger": "Application ClientAccount Ledger Share",
    "own_threads": "Threads settle settle_here",
    "peer_user": "Endpoint",
    "handshakes": "Certificates",
    "turns": "RequestShares TaskTurn",
}

if TYPE_CHECKING:
    from zmqtriton_frontends.process.allocator import unused_of
    from zmqtriton_frontends.process.arrivals import Arrivals
    from zmqtriton_frontends.process.client_progress import ClientProgress
    from zmqtriton_frontends.process.futures import Tasks, wake
    from zmqtriton_frontends.process.handshakes import Certificates
    from zmqtriton_frontends.process.ledger import Application, ClientAccount, Ledger, Share
    from zmqtriton_frontends.process.own_threads import Threads, settle, settle_here
    from zmqtriton_frontends.process.peer_user import Endpoint
    from zmqtriton_frontends.process.room import max_connections
    from zmqtriton_frontends.process.turns import RequestShares, TaskTurn
else:
    __getattr__ = lazy_names(__name__, _NAMES)
