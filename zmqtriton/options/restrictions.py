"""The categories by which an operator may restrict clients; each route and RPC has one."""

from __future__ import annotations

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
#: HTTP alone has OpenAI's API, steers models while they serve, and shows people state and log.
HTTP_CATEGORIES = (*CATEGORIES, "openai", "steering", "status", "logs")
