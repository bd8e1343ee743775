"""The routes by which clients steer models, watch the server, and share memory with it."""

from __future__ import annotations

from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.http_api.asgi.route import Route
from zmqtriton_frontends.http_api.control.operations import Operations
from zmqtriton_frontends.http_api.control.shared_memory import SharedMemory
from zmqtriton_frontends.http_api.control.status import Status


def routes(gateway: Gateway) -> list[Route]:
    return [
        *Operations(gateway).routes(),
        *Status(gateway).routes(),
        *_shared_memory(SharedMemory(gateway, "system"), "/v2/systemsharedmemory"),
        *_shared_memory(SharedMemory(gateway, "cuda"), "/v2/cudasharedmemory"),
    ]


def _shared_memory(memory: SharedMemory, prefix: str) -> list[Route]:
    region = f"{prefix}/region/{{region:name}}"
    return [
        Route("GET", f"{prefix}/status", "shared-memory", memory.status),
        Route("GET", f"{region}/status", "shared-memory", memory.status),
        Route("POST", f"{region}/register", "shared-memory", memory.register),
        Route("POST", f"{prefix}/register", "shared-memory", memory.register_nameless),
        Route("POST", f"{prefix}/unregister", "shared-memory", memory.unregister),
        Route("POST", f"{region}/unregister", "shared-memory", memory.unregister),
    ]
