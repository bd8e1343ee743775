"""The rows of the table of routes for OpenAI's API."""

from __future__ import annotations

from zmqtriton_addons.web_apis.openai.embeddings import Embeddings
from zmqtriton_addons.web_apis.openai.models import Models
from zmqtriton_addons.web_apis.openai.text import Texts
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.http_api import Route

_CATEGORY = "openai"


def routes(gateway: Gateway) -> list[Route]:
    """Return them; who restricts `inference` or `metadata` has restricted these, too."""
    texts, embeddings, models = Texts(gateway), Embeddings(gateway), Models(gateway)
    return [
        Route("POST", "/v1/chat/completions", _CATEGORY, texts.chat, "inference"),
        Route("POST", "/v1/completions", _CATEGORY, texts.complete, "inference"),
        Route("POST", "/v1/responses", _CATEGORY, texts.respond, "inference"),
        Route("POST", "/v1/embeddings", _CATEGORY, embeddings.embed, "inference"),
        Route("GET", "/v1/models", _CATEGORY, models.list_all, "metadata"),
        Route("GET", "/v1/models/{model:name}", _CATEGORY, models.show, "metadata"),
    ]
