"""Functions over HTTP: POST /NAME takes plain JSON, or a form."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from typing import Any

import falcon
import falcon.asgi

from zmqtriton_extras.functions.backend.kinds import MismatchError
from zmqtriton_extras.functions.backend.signature import DESCRIPTION
from zmqtriton_extras.functions.interface import Interface, interface_of
from zmqtriton_extras.routes.backend.multipart import RefusedError
from zmqtriton_floor.errors import InvalidArgument, NotFound, ZmqTritonError
from zmqtriton_frontends.access.bearer_tokens import may_see
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.http_api import (
    HttpEntrance,
    HttpExtension,
    HttpRequest,
    Operation,
    Route,
    RouteDescriptions,
)
from zmqtriton_frontends.http_api.inference import json_documents
from zmqtriton_frontends.inference import ModelVersion
from zmqtriton_standard.generate.response import Events, as_event

#: Any path that no other route has: those of routes.py have the same.
_PATH = "/{path:path}"
#: The errors for a name that no model has.
_UNKNOWN = (InvalidArgument.number, NotFound.number)


class Functions:
    """The responder."""

    def __init__(self, gateway: Gateway) -> None:
        self._catalogue = gateway.catalogue
        self._entrance = HttpEntrance(gateway)
        self._max_bytes: int = gateway.settings.http.max_input_size

    async def call(self, req: HttpRequest, resp: falcon.asgi.Response, path: str) -> None:
        """Call the function that has the name of the path."""
        if not await self.try_call(req, resp, path):
            await req.drop_body()
            raise falcon.HTTPNotFound

    async def try_call(self, req: HttpRequest, resp: falcon.asgi.Response, path: str) -> bool:
        """Call the function; return whether there is one."""
        deadline_ns = req.deadline_ns
        if "/" in path:
            return False
        try:
            model = await self._entrance.find(path, grant=req.grant, deadline_ns=deadline_ns)
        except ZmqTritonError as error:
            # a token may not know names that no model has: such a path may be a route's
            if error.number in _UNKNOWN or path not in self._catalogue.versions():
                return False
            raise
        interface = interface_of(model.config)
        if interface is None:
            return False
        body = await req.read_body(self._max_bytes)
        try:
            kind = req.header(b"content-type") or ""
            inputs = await json_documents.perform(len(body), interface.read, kind, body)
            await self._answer(req, resp, model, interface, inputs)
        except RefusedError as error:
            resp.status, resp.data = error.args[0], json_documents.write({"error": error.args[1]})
        except MismatchError as error:
            resp.status, resp.data = 422, _refusal(interface, str(error))
        except InvalidArgument as error:
            resp.status, resp.data = 422, _refusal(interface, error.text)
        return True

    async def _answer(
        self,
        req: HttpRequest,
        resp: falcon.asgi.Response,
        model: ModelVersion,
        interface: Interface,
        inputs: dict[str, Any],
    ) -> None:
        answers = self._entrance.stream(req, model.name, inputs)
        try:
            first = interface.write(await anext(answers, {}))
        except BaseException:
            await answers.aclose()
            raise
        if not interface.is_stream:
            await answers.aclose()
            resp.data = first
            return
        resp.content_type = "text/event-stream; charset=utf-8"

        async def write(outputs: dict[str, Any]) -> bytes:
            return as_event(interface.write(outputs))

        resp.stream = Events(as_event(first), answers, write, turn=req.turn, made=req.made)

    def around(self, route: Route) -> Route:
        """Return a route of all other paths, behind those of functions."""
        inner = route.responder

        @wraps(inner)
        async def respond(req: HttpRequest, resp: falcon.asgi.Response, path: str) -> None:
            if not await self.try_call(req, resp, path):
                await inner(req, resp, path=path)

        return route._replace(responder=respond)


def _refusal(interface: Interface, text: str) -> bytes:
    """Return the document of an error that the client's arguments are the reason of."""
    place, _, expected = text.partition(": ")
    path = place.split(".")
    detail = [{"loc": path, "msg": expected}] if path[0] in interface.input["properties"] else []
    document: bytes = json_documents.write({"error": text, "detail": detail})
    return document


def _around(gateway: Gateway, table: list[Route]) -> Sequence[Route]:
    functions = Functions(gateway)
    if any(route.path == _PATH for route in table):
        return [
            functions.around(route) if (route.method, route.path) == ("POST", _PATH) else route
            for route in table
        ]
    return [*table, Route("POST", _PATH, "inference", functions.call)]


_DESCRIPTIONS = RouteDescriptions(
    {
        "Functions.call": Operation("Call the function with this name, by POST; 404 for all else"),
    }
)


async def _describe(gateway: Gateway, req: HttpRequest, document: dict[str, Any]) -> None:
    """Add each function, which the route of all names stands for."""
    for model in gateway.catalogue.newest():
        interface = interface_of(model.config) if DESCRIPTION in model.config_text else None
        if interface is not None and may_see(req.grant, model.name):
            operation = interface.operation(model.name)
            if gateway.settings.access.tokens:
                operation["security"] = [{"token": []}]
            document["paths"][f"/{model.name}"] = {"post": operation}
            document["tags"].append({"name": model.name})


EXTENSION = HttpExtension(around=_around, descriptions=lambda _: _DESCRIPTIONS, describe=_describe)
