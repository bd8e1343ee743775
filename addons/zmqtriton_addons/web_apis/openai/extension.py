"""OpenAI's API as an extension of the HTTP frontend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import falcon.asgi

from zmqtriton_addons.web_apis.openai import problems
from zmqtriton_addons.web_apis.openai.embeddings import Embeddings
from zmqtriton_addons.web_apis.openai.models import Models
from zmqtriton_addons.web_apis.openai.text import Texts
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.http_api import HttpExtension, Request, Route, RouteDescriptions

if TYPE_CHECKING:
    from zmqtriton_addons.web_apis.openai.realtime.session import Sessions

_CATEGORY = "openai"


class Realtime:
    """The responder of WebSockets; the first client loads what they need."""

    def __init__(self, gateway: Gateway, texts: Texts) -> None:
        self._parts = gateway, texts
        self._sessions: Sessions | None = None

    async def converse(self, req: Request, resp: falcon.asgi.Response) -> None:
        if self._sessions is None:
            from zmqtriton_addons.web_apis.openai.realtime.session import Sessions

            self._sessions = Sessions(*self._parts)
        await self._sessions.converse(req, resp)


def routes(gateway: Gateway) -> list[Route]:
    """Return the routes; who restricts `inference` or `metadata` has restricted these, too."""
    texts, embeddings, models = Texts(gateway), Embeddings(gateway), Models(gateway)
    return [
        Route("POST", "/v1/chat/completions", _CATEGORY, texts.chat, "inference"),
        Route("POST", "/v1/completions", _CATEGORY, texts.complete, "inference"),
        Route("POST", "/v1/responses", _CATEGORY, texts.respond, "inference"),
        Route("GET", "/v1/realtime", _CATEGORY, Realtime(gateway, texts).converse, "inference"),
        Route("POST", "/v1/embeddings", _CATEGORY, embeddings.embed, "inference"),
        Route("GET", "/v1/models", _CATEGORY, models.list_all, "metadata"),
        Route("GET", "/v1/models/{model:name}", _CATEGORY, models.show, "metadata"),
    ]


def _routes(gateway: Gateway) -> Sequence[Route]:
    if not gateway.settings.http.allow_openai:
        return ()
    # only now: a server without the API need not load it

    return routes(gateway)


def _descriptions(gateway: Gateway) -> RouteDescriptions:
    if not gateway.settings.http.allow_openai:
        return RouteDescriptions()
    from zmqtriton_addons.web_apis.openai.description import DESCRIPTIONS

    return DESCRIPTIONS


EXTENSION = HttpExtension(_routes, problems.PREFIX, problems.Form(), _descriptions)
