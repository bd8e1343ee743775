"""Routes of models as an extension of the HTTP frontend; without --routes it changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.http_api import HttpExtension, Operation, Route, RouteDescriptions

_SUMMARY = "A route of the model's own: whatever its routes.py makes of it"


def is_on(gateway: Gateway) -> bool:
    return dict(gateway.settings.server.service_options).get("routes") == "true"


def _routes(gateway: Gateway) -> Sequence[Route]:
    if not is_on(gateway):
        return ()
    # only now: a server without them need not load it
    from zmqtriton_addons.routes.forwarding import routes

    return routes(gateway)


def _descriptions(gateway: Gateway) -> RouteDescriptions:
    operations = {"Forwarding.forward": Operation(_SUMMARY)} if is_on(gateway) else {}
    return RouteDescriptions(operations)


EXTENSION = HttpExtension(routes=_routes, descriptions=_descriptions)
