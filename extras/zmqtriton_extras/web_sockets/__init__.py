"""WebSockets: requests and responses of a model in both directions, for browsers and others."""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "web_sockets",
    after=("generate", "openai"),
    offers={
        "http.extension": ".extension:EXTENSION",
    },
)
