"""OpenAI's API as an extension of the HTTP frontend."""

from __future__ import annotations

from collections.abc import Sequence

from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.http_api.asgi.route import Route
from zmqtriton_frontends.http_api.extension import HttpExtension
from zmqtriton_frontends.http_api.openai import problems


def _routes(gateway: Gateway) -> Sequence[Route]:
    if not gateway.settings.http.allow_openai:
        return ()
    # only now: a server without the API need not load it
    from zmqtriton_frontends.http_api.openai.routes import routes

    return routes(gateway)


EXTENSION = HttpExtension(_routes, problems.PREFIX, problems.Form())
