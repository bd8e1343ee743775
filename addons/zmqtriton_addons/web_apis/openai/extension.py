"""OpenAI's API as an extension of the HTTP frontend."""

from __future__ import annotations

from collections.abc import Sequence

from zmqtriton_addons.web_apis.openai import problems
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.http_api import HttpExtension, Route, RouteDescriptions


def _routes(gateway: Gateway) -> Sequence[Route]:
    if not gateway.settings.http.allow_openai:
        return ()
    # only now: a server without the API need not load it
    from zmqtriton_addons.web_apis.openai.routes import routes

    return routes(gateway)


def _descriptions(gateway: Gateway) -> RouteDescriptions:
    if not gateway.settings.http.allow_openai:
        return RouteDescriptions()
    from zmqtriton_addons.web_apis.openai.description import DESCRIPTIONS

    return DESCRIPTIONS


EXTENSION = HttpExtension(_routes, problems.PREFIX, problems.Form(), _descriptions)
