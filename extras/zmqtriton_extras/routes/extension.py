"""Routes of models as an extension of the HTTP frontend; without --routes it changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zmqtriton.sdk.frontend import (
    Gateway,
    HttpExtension,
    HttpRequest,
    Operation,
    Route,
    RouteDescriptions,
)

_SUMMARY = "A route of the model's own: whatever its routes.py makes of it"


def is_on(gateway: Gateway) -> bool:
    return bool(gateway.settings.option("routes"))


def _routes(gateway: Gateway) -> Sequence[Route]:
    if not is_on(gateway):
        return ()
    # only now: a server without them need not load it
    from zmqtriton_extras.routes.forwarding import routes

    return routes(gateway)


def _descriptions(gateway: Gateway) -> RouteDescriptions:
    responders = ("Forwarding.forward", "Forwarding.forward_path") if is_on(gateway) else ()
    return RouteDescriptions(dict.fromkeys(responders, Operation(_SUMMARY)))


async def _describe(gateway: Gateway, req: HttpRequest, document: dict[str, Any]) -> None:
    if is_on(gateway):
        from zmqtriton_extras.routes.forwarding import describe

        await describe(gateway, req, document)


EXTENSION = HttpExtension(routes=_routes, descriptions=_descriptions, describe=_describe)
