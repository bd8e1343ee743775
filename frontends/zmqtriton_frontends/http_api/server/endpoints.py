"""The endpoints that a process of HTTP serves, each on a socket of its own."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from zmqtriton_floor.errors import Unsupported
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.http_api import app
from zmqtriton_frontends.http_api.asgi.access import Access
from zmqtriton_frontends.http_api.extension import EndpointParts, extensions
from zmqtriton_frontends.process.ledger import Application

MAIN = "socket"
#: The services by the options that name their sockets. All but the main are served by add-ons.
SOCKETS = {
    MAIN: "HTTPService",
    "sagemaker-socket": "Sagemaker HTTPService",
    "vertex-ai-socket": "Vertex AI HTTPService",
}


def all_endpoints(
    names: Collection[str], gateway: Gateway, application: Application, access: Access
) -> dict[str, Application]:
    """Return the application of each endpoint; they pass requests on to that of the main.

    Raises Unsupported for one that no add-on serves.
    """

    parts = EndpointParts(gateway, application, access, partial(app.build, gateway, access=access))
    made_by = {
        name: make
        for extension in extensions(gateway)
        for name, make in extension.endpoints.items()
    }
    endpoints = {MAIN: application}
    for name in names:
        if name == MAIN:
            continue
        if name not in made_by:
            raise Unsupported(f"no add-on is installed that serves the {SOCKETS[name]}")
        endpoints[name] = made_by[name](parts)
    return endpoints
