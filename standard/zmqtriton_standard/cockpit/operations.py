"""Operations on models while they serve. Decides which clients may use them; the supervisor acts.

Clients may steer where they may load and unload models, and wherever a key or a token guards these
routes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import falcon
import falcon.asgi

from zmqtriton.sdk.frontend import Gateway, HttpRequest, Route, by_category, json_documents
from zmqtriton.sdk.wire import InvalidArgument

CATEGORY = "steering"
#: Category of Triton whose key also guards steering: a client without the right to load models
#: must not scale or restart them.
_GENERAL_CATEGORY = "model-repository"
_REFUSAL = (
    "clients may steer models with --model-control-mode=explicit, or if a key or a token guards "
    f"it: --http-restricted-api={CATEGORY}:KEY=VALUE, --tokens=FILE"
)
_REFUSAL_OF_SERVER = (
    "clients may drain the server if a key or a token guards it: "
    f"--http-restricted-api={CATEGORY}:KEY=VALUE, --tokens=FILE"
)


def is_guarded(gateway: Gateway) -> bool:
    """True if a key or a token guards these routes."""
    access = gateway.settings.access
    guarded = by_category(access.restrictions)
    return CATEGORY in guarded or _GENERAL_CATEGORY in guarded or bool(access.tokens)


def is_open(gateway: Gateway) -> bool:
    """True if clients may steer models at all."""
    return is_guarded(gateway) or gateway.settings.models.control_mode == "explicit"


class Operations:
    """Responders that steer models; each returns when the supervisor has done the work."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._is_open = is_open(gateway)
        #: A key or a token guards steering. Without one, explicit mode lets clients steer models,
        #: but not drain the whole server.
        self._is_guarded = is_guarded(gateway)

    def routes(self) -> list[Route]:
        return [
            self._route("GET", "/v2/models/{model:name}/scale", self.scale),
            self._route("POST", "/v2/models/{model:name}/scale", self.change_scale),
            self._route("GET", "/v2/models/{model:name}/canary", self.canary),
            self._route("POST", "/v2/models/{model:name}/canary", self.change_canary),
            self._route("POST", "/v2/models/{model:name}/canary/promote", self.promote_canary),
            self._route("POST", "/v2/models/{model:name}/canary/abort", self.abort_canary),
            self._route("POST", "/v2/models/{model:name}/restart", self.restart),
            *(
                route
                for of in ("/v2/models/{model:name}", "/v2")
                for route in (
                    self._route("GET", f"{of}/drain", self.drain_state),
                    self._route("POST", f"{of}/drain", self.drain),
                    self._route("POST", f"{of}/undrain", self.undrain),
                )
            ),
        ]

    def _route(self, method: str, path: str, responder: Callable[..., Awaitable[None]]) -> Route:
        return Route(method, path, CATEGORY, responder, _GENERAL_CATEGORY)

    async def scale(self, req: HttpRequest, resp: falcon.asgi.Response, model: str) -> None:
        resp.data = json_documents.write(await self._gateway.call("scale", {"model": model}))

    async def change_scale(self, req: HttpRequest, resp: falcon.asgi.Response, model: str) -> None:
        document = await self._changes(req)
        if "count" not in document:
            raise InvalidArgument('the number of instances is missing: {"count": 2}')
        resp.data = json_documents.write(
            await self._gateway.call("scale", {**document, "model": model})
        )

    async def canary(self, req: HttpRequest, resp: falcon.asgi.Response, model: str) -> None:
        canaries = await self._gateway.call("canary.status", {"model": model})
        resp.data = json_documents.write(canaries[0])

    async def change_canary(self, req: HttpRequest, resp: falcon.asgi.Response, model: str) -> None:
        """Start a canary if a version is named, else change the running canary."""
        document = await self._changes(req)
        verb = "canary.start" if "version" in document else "canary.change"
        await self._call_about_canary(resp, verb, {**document, "model": model})

    async def promote_canary(
        self, req: HttpRequest, resp: falcon.asgi.Response, model: str
    ) -> None:
        await self._changes(req)
        await self._call_about_canary(resp, "canary.promote", {"model": model})

    async def abort_canary(self, req: HttpRequest, resp: falcon.asgi.Response, model: str) -> None:
        await self._changes(req)
        await self._call_about_canary(resp, "canary.abort", {"model": model})

    async def _call_about_canary(
        self, resp: falcon.asgi.Response, verb: str, call: dict[str, Any]
    ) -> None:
        resp.data = json_documents.write(await self._gateway.call(verb, call))

    async def restart(self, req: HttpRequest, resp: falcon.asgi.Response, model: str) -> None:
        """Restart the processes of a model; the requests that they execute fail."""
        await self._changes(req)
        ended = await self._gateway.call("restart", {"model": model})
        resp.data = json_documents.write({"model": model, "ended": ended})

    async def drain_state(
        self, req: HttpRequest, resp: falcon.asgi.Response, model: str = ""
    ) -> None:
        resp.data = json_documents.write(await self._gateway.call("drain.state", {"model": model}))

    async def drain(self, req: HttpRequest, resp: falcon.asgi.Response, model: str = "") -> None:
        await self._drain("drain", req, resp, model)

    async def undrain(self, req: HttpRequest, resp: falcon.asgi.Response, model: str = "") -> None:
        await self._drain("undrain", req, resp, model)

    async def _drain(
        self, verb: str, req: HttpRequest, resp: falcon.asgi.Response, model: str
    ) -> None:
        call = {**await self._changes(req, is_of_server=not model), "model": model}
        resp.data = json_documents.write(await self._gateway.call(verb, call))

    async def _changes(self, req: HttpRequest, *, is_of_server: bool = False) -> dict[str, Any]:
        """Return the object in the body, if the client may change anything."""
        body = await req.read_control()
        if not (self._is_guarded if is_of_server else self._is_open):
            raise falcon.HTTPForbidden(description=_REFUSAL_OF_SERVER if is_of_server else _REFUSAL)
        document = json_documents.parse(body) if body else {}
        if type(document) is not dict:
            raise InvalidArgument("the body must be a JSON object")
        return document
