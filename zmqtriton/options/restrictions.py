"""The categories by which an operator may restrict clients; each route and RPC has one."""

from __future__ import annotations

from zmqtriton import addons

CATEGORIES = (
    "health",
    "metadata",
    "inference",
    "shared-memory",
    "model-config",
    "model-repository",
    "statistics",
    "trace",
    "logging",
)
#: The options that restrict clients, by field, and what each calls a category.
RESTRICTING_OPTIONS = {
    "http_restricted_api": "api",
    "grpc_restricted_protocol": "protocol",
    **{s.restrictions: "verb" for s in addons.local_services().values() if s.restrictions},
}
#: HTTP alone has OpenAI's API, steers models while they serve, and shows people state and log.
HTTP_CATEGORIES = (*CATEGORIES, "openai", "steering", "status", "logs")
