"""WebSockets as an extension of the HTTP frontend, whose modules the first client loads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import falcon.asgi

from zmqtriton.sdk.frontend import (
    Gateway,
    HttpExtension,
    HttpRequest,
    Operation,
    Route,
    RouteDescriptions,
)

if TYPE_CHECKING:
    from zmqtriton_extras.web_sockets.stream import Streams


class WebSockets:
    """The responder of WebSockets."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._streams: Streams | None = None

    async def stream(
        self, req: HttpRequest, resp: falcon.asgi.Response, model: str, version: str = ""
    ) -> None:
        if self._streams is None:
            from zmqtriton_extras.web_sockets.stream import Streams

            self._streams = Streams(self._gateway)
        await self._streams.converse(req, resp, (model, version))


def _routes(gateway: Gateway) -> Sequence[Route]:
    stream = WebSockets(gateway).stream
    return [
        Route("GET", f"/v2/models/{{model:name}}{version}/stream", "inference", stream)
        for version in ("", "/versions/{version:number}")
    ]


def _descriptions(gateway: Gateway) -> RouteDescriptions:
    summary = "A WebSocket: requests of `infer` in, responses out, in any number"
    return RouteDescriptions({"WebSockets.stream": Operation(summary)})


EXTENSION = HttpExtension(routes=_routes, descriptions=_descriptions)
