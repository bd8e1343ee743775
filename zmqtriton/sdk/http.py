"""Routes of the HTTP frontend: an `HttpExtension` has them, and says how they are described."""

from zmqtriton_frontends.http_api.asgi.access import Route
from zmqtriton_frontends.http_api.asgi.request import HttpRequest
from zmqtriton_frontends.http_api.extension import (
    EndpointParts,
    Example,
    HttpExtension,
    Operation,
    RouteDescriptions,
)
from zmqtriton_frontends.http_api.inference.infer import HttpEntrance

__all__ = [
    "EndpointParts",
    "Example",
    "HttpEntrance",
    "HttpExtension",
    "HttpRequest",
    "Operation",
    "Route",
    "RouteDescriptions",
]
