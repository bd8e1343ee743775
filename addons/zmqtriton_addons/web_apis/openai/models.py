"""GET /v1/models and /v1/models/{model}: the models that serve, and their adapters."""

from __future__ import annotations

from typing import Any

import falcon.asgi
import orjson

from zmqtriton_addons.web_apis.openai.calls import Calls
from zmqtriton_addons.web_apis.openai.tensor_names import ids_of
from zmqtriton_frontends.access.bearer_tokens import may_see
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.http_api import Request

#: As Triton's frontend says it.
_OWNER = "Triton Inference Server"


class Models:
    """The responders."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._calls = Calls(gateway)

    async def list_all(self, req: Request, resp: falcon.asgi.Response) -> None:
        seen = [m for m in self._gateway.catalogue.newest() if may_see(req.grant, m.name)]
        documents = [self._describe(name) for model in seen for name in ids_of(model)]
        resp.data = orjson.dumps({"object": "list", "data": documents})

    async def show(self, req: Request, resp: falcon.asgi.Response, model: str) -> None:
        await self._calls.find_adapted(req, model)
        resp.data = orjson.dumps(self._describe(model))

    def _describe(self, name: str) -> dict[str, Any]:
        # when each was loaded is known to nobody here, and all workers must say the same
        created = self._gateway.settings.server.started_at
        return {"id": name, "object": "model", "created": created, "owned_by": _OWNER}
