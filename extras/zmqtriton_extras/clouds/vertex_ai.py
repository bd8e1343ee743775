"""Vertex AI's endpoints: health, and a route for predictions and for redirected requests.

The platform passes on POST requests to one path only, so a header names the redirected path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from zmqtriton.sdk.frontend import AccessRules, Gateway, problems
from zmqtriton.sdk.wire import InvalidArgument
from zmqtriton_extras.clouds import NO_DEFAULT
from zmqtriton_extras.clouds.target_models import (
    Application,
    Scope,
    Target,
    answer,
    header,
    pass_on,
    refuse,
)

BINARY_TYPE = "application/vnd.vertex-ai-triton.binary+json;json-header-size="
_REDIRECT = b"x-vertex-ai-triton-redirect"

_MODEL = r"v2/models/[^/]+(?:/versions/[0-9]+)?"
_REGION = r"v2/(?:system|cuda)sharedmemory(?:/region/[^/]+)?"
#: Paths that a request may be redirected to, with their methods.
_TARGETS = (
    ("GET", re.compile(r"v2|v2/health/(?:live|ready)|v2/models/stats")),
    ("POST", re.compile(rf"{_MODEL}/infer")),
    ("GET", re.compile(rf"{_MODEL}(?:/(?:ready|config|stats))?")),
    ("GET", re.compile(rf"{_REGION}/status")),
    ("POST", re.compile(rf"{_REGION}/(?:un)?register")),
    ("POST", re.compile(r"v2/repository/(?:[^/]+/)?(?:index|models/[^/]+/(?:load|unload))")),
)

Scrape = Callable[[], Awaitable[str]]


class VertexAi:
    """The ASGI application of Vertex AI's port."""

    def __init__(
        self,
        gateway: Gateway,
        application: Application,
        scrape: Scrape | None,
        access: AccessRules,
    ) -> None:
        """Set up; without `scrape` there are no metrics."""
        self._access = access
        self._catalogue = gateway.catalogue
        self._application = application
        self._scrape = scrape
        self._health = re.compile(os.environ["AIP_HEALTH_ROUTE"])
        self._predict = re.compile(os.environ["AIP_PREDICT_ROUTE"])
        self._default_model = str(gateway.settings.option("vertex_ai_default_model"))
        names = [model.name for model in self._catalogue.newest()]
        if not self._default_model and len(names) == 1:
            self._default_model = names[0]

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        path, redirect = scope["path"], header(scope, _REDIRECT)
        if self._health.fullmatch(path):
            target = Target(scope["method"], "/v2/health/ready", BINARY_TYPE)
        elif not self._predict.fullmatch(path):
            await answer(send, 400)
            return
        elif redirect is None:
            try:
                target = Target(
                    scope["method"], f"/v2/models/{quote(self._model())}/infer", BINARY_TYPE
                )
            except InvalidArgument as error:
                await answer(send, *problems.response_to(error))
                return
        elif scope["method"] != "POST":
            await answer(send, 405)
            return
        elif redirect == "metrics":
            await self._send_metrics(scope, send)
            return
        else:
            redirected = _find_target(redirect)
            if redirected is None:
                await answer(send, 400)
                return
            target = redirected
        await pass_on(self._application, scope, receive, send, target)

    def _model(self) -> str:
        """Return the model for predictions that name none. Raises InvalidArgument."""
        if self._default_model:
            return self._default_model
        names = [model.name for model in self._catalogue.newest()]
        if len(names) != 1:
            raise InvalidArgument(NO_DEFAULT)
        return names[0]

    async def _send_metrics(self, scope: Scope, send: Any) -> None:
        refusal = self._access.refusal(scope, "metrics")
        if refusal is not None:
            await refuse(send, refusal)
            return
        if self._scrape is None:
            await answer(send, 400)
            return
        page = (await self._scrape()).encode()
        rows = [(b"content-type", b"text/plain; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": rows})
        await send({"type": "http.response.body", "body": page})


def _find_target(redirect: str) -> Target | None:
    for method, pattern in _TARGETS:
        if pattern.fullmatch(redirect):
            return Target(method, f"/{redirect}", BINARY_TYPE)
    return None
