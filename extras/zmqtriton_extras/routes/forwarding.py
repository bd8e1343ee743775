"""Requests to models' routes, which go to the models of these routes, and their responses.

A body is in memory that the model's process can read, so it does not pass the broker; a response is
sent as it comes, at its reader's pace.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import falcon
import falcon.asgi

from zmqtriton.sdk.frontend import (
    Ask,
    Content,
    Gateway,
    HttpEntrance,
    HttpRequest,
    ModelVersion,
    Route,
    StreamItem,
    Threads,
    bearer_tokens,
)
from zmqtriton.sdk.wire import InternalError, Unavailable, ZmqTritonError, datatypes, wire
from zmqtriton_extras.routes import names

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
#: Seconds that a request waits for routes that are being loaded.
_WITHIN_S = 30.0
_AGAIN_S = 0.05
#: Seconds that a client of /openapi.json waits for routes that are not described yet.
_DESCRIBED_WITHIN_S = 5.0
_LARGE_BYTES = 64 << 10
_BYTES, _UINT8 = datatypes.BY_NAME["BYTES"].number, datatypes.BY_NAME["UINT8"].number
#: Headers of the connection with the client, which are not the route's.
_OWN_HEADERS = frozenset(
    (
        "connection",
        "content-length",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_log = logging.getLogger(__name__)
_threads = Threads("routes", 2, 1024)

_DESCRIBED = ("get", "post", "put", "patch", "delete")
_SCHEMAS = "#/components/schemas/"
#: The fields of an operation that an application may fill.
_FIELDS = ("summary", "description", "parameters", "requestBody", "responses", "deprecated")
_TOKEN: list[dict[str, list[str]]] = [{"token": []}]


async def describe(gateway: Gateway, req: HttpRequest, document: dict[str, Any]) -> None:
    """Replace the general paths in the document by the routes of each model."""
    for path in ("/models/{model}/{rest}", "/{path}"):
        del document["paths"][path]
    models = [
        version
        for version in gateway.catalogue.newest()
        if names.CONTENTS in version.config_text
        and version.config.get("backend") == names.BACKEND
        and bearer_tokens.may_see(req.grant, version.name.removesuffix(names.SUFFIX))
    ]
    forwarding = forwarding_of(gateway)
    answers = await asyncio.gather(
        *(forwarding.describe(req, model) for model in models), return_exceptions=True
    )
    for model, answer in zip(models, answers, strict=True):
        try:
            if isinstance(answer, BaseException):
                raise answer
            _add(document, model, answer, has_tokens=bool(gateway.settings.access.tokens))
        except (ZmqTritonError, ValueError, TypeError, AttributeError) as error:
            _log.warning("routes of '%s' are not described: %s", model.name, error)


def _add(
    document: dict[str, Any], routed: ModelVersion, own: dict[str, Any], *, has_tokens: bool
) -> None:
    """Add the document of one model. Raises a fault in an application's own document."""
    model = routed.name.removesuffix(names.SUFFIX)
    root, prefix = names.path_of(routed.config, model), re.sub(r"[^A-Za-z0-9._-]", "_", model)
    paths: dict[str, Any] = {}
    for path, operations in own["paths"].items():
        for method in _DESCRIBED:
            if method in operations:
                operation = {n: v for n, v in operations[method].items() if n in _FIELDS}
                operation = {"summary": "", "responses": {}, **operation, "tags": [routed.name]}
                operation["operationId"] = "_".join(
                    (method, *re.findall(r"\w+", f"{root}{path}".replace("{", "By_")))
                )
                if has_tokens:
                    operation["security"] = _TOKEN
                paths.setdefault(f"{root}{path}", {})[method] = _renamed(operation, prefix)
    schemas = _renamed(own.get("components", {}).get("schemas", {}), prefix)
    document["components"]["schemas"] = {
        **document["components"]["schemas"],
        **{f"{prefix}.{name}": each for name, each in schemas.items()},
    }
    document["paths"] |= paths
    document["tags"].append({"name": routed.name})


def _renamed(value: Any, prefix: str) -> Any:
    """Return a part of a document, with references to schemas under their new names."""
    if isinstance(value, list):
        return [_renamed(each, prefix) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: each.replace(_SCHEMAS, f"{_SCHEMAS}{prefix}.")
        if key == "$ref" and isinstance(each, str)
        else _renamed(each, prefix)
        for key, each in value.items()
    }


def routes(gateway: Gateway) -> Sequence[Route]:
    forwarding = forwarding_of(gateway)
    return [
        Route(method, path, "inference", responder)
        for path, responder in (
            ("/models/{model:name}/{rest:path}", forwarding.forward),
            # paths that no other route of the server has
            ("/{path:path}", forwarding.forward_path),
        )
        for method in _METHODS
    ]


@lru_cache(maxsize=1)
def forwarding_of(gateway: Gateway) -> Forwarding:
    """Return the forwarding of a process, always the same one."""
    return Forwarding(gateway)


class _Place(NamedTuple):
    """The place of a request: its model's root path, and its own path below that."""

    root: str
    path: str


class Paths:
    """The models with paths of their own for routes, read again only after changes."""

    def __init__(self, gateway: Gateway) -> None:
        self._catalogue = gateway.catalogue
        self._changes = -1
        #: Models by these paths: with routes that are served, and with routes that will be.
        self._served: dict[str, str] = {}
        self._meant: dict[str, str] = {}

    def find(self, path: str) -> tuple[str, _Place] | None:
        """Return the model whose routes have a path, preferably a serving one."""
        if self._changes != self._catalogue.changes:
            self._changes = self._catalogue.changes
            self._read()
        roots = list(names.roots(path))
        for by_path in (self._served, self._meant):
            for root in filter(by_path.__contains__, roots):
                return by_path[root], _Place(root, path[len(root) :] or "/")
        return None

    def _read(self) -> None:
        self._served, self._meant = {}, {}
        for version in self._catalogue.newest():
            if names.PATH not in version.config_text:
                continue  # without reading the configuration, which may be large
            root = names.parameter(version.config, names.PATH)
            model = version.name.removesuffix(names.SUFFIX)
            if not names.path_problem(root):
                by_path = self._meant if model == version.name else self._served
                by_path.setdefault(root, model)


class Forwarding:
    """The responder of routes."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._entrance = HttpEntrance(gateway)
        self._max_bytes: int = gateway.settings.http.max_input_size
        self._paths = Paths(gateway)
        #: Generation and presence of routes for each model that was requested, by its name.
        self._has_routes: dict[str, tuple[int, bool]] = {}
        #: The descriptions by models of routes, likewise.
        self._described: dict[str, tuple[int, dict[str, Any]]] = {}

    async def forward(
        self, req: HttpRequest, resp: falcon.asgi.Response, model: str, rest: str
    ) -> None:
        """Answer a request below `/models/NAME`."""
        await self._forward(req, resp, model, _Place(f"/models/{model}", f"/{rest}"))

    async def forward_path(self, req: HttpRequest, resp: falcon.asgi.Response, path: str) -> None:
        """Answer a request below a model's own path for its routes."""
        target = self._paths.find(f"/{path}")
        if target is None:
            await req.drop_body()
            raise falcon.HTTPNotFound
        await self._forward(req, resp, *target)

    async def _forward(
        self, req: HttpRequest, resp: falcon.asgi.Response, model: str, place: _Place
    ) -> None:
        # before anything is refused: an answer to half a body would be lost with the connection
        pieces, size = await req.read_pieces(self._max_bytes)
        routed = await self._find(req, model)
        with await self._gateway.payload.gather(pieces, size, 0, req.hold) as body:
            items = await self._ask(req, routed, _head(req, place), body, req.deadline_ns)
            answer = Answer(req, items)
            try:
                await answer.begin(resp)
            except BaseException:
                await answer.close()
                raise

    async def describe(self, req: HttpRequest, routed: ModelVersion) -> dict[str, Any]:
        """Return a model's description of its routes. Raises its error."""
        described = self._described.get(routed.name)
        if described is not None and described[0] == routed.generation:
            return described[1]
        model = routed.name.removesuffix(names.SUFFIX)
        head = json.dumps({names.DESCRIBES: names.path_of(routed.config, model)}).encode()
        deadline_ns = time.monotonic_ns() + int(_DESCRIBED_WITHIN_S * 1e9)
        items = await self._ask(req, routed.name, head, b"", deadline_ns)
        async with aclosing(items) as answers:
            outputs = _outputs(_body_of(await anext(answers, None)))
        document: dict[str, Any] = json.loads(bytes(outputs[names.BODY]))
        self._described[routed.name] = routed.generation, document
        return document

    async def _ask(
        self, req: HttpRequest, routed: str, head: bytes, body: Any, deadline_ns: int
    ) -> AsyncGenerator[StreamItem, None]:
        ask = Ask(
            (routed, ""),
            partial(_content, head, body),
            req.header,
            None,
            _grant(req, routed),
            deadline_ns,
            time.monotonic_ns(),
            source=req.source,
        )
        checked = await self._entrance.admit(ask)
        return self._entrance.responses(checked, req.arrivals())

    async def _find(self, req: HttpRequest, model: str) -> str:
        """Return the model of the routes, if it exists. Raises the refusal for the client."""
        catalogue, name = self._gateway.catalogue, model + names.SUFFIX
        version = await self._entrance.find(model, grant=req.grant, deadline_ns=req.deadline_ns)
        if version.config.get("backend") == names.BACKEND:  # it is itself the model of routes
            raise falcon.HTTPError(
                404,
                description=f"model '{model}' has no routes: write a routes.py next to its "
                "model.py",
            )
        end_s = time.monotonic() + _WITHIN_S
        while True:
            try:
                return catalogue.find(name).name
            except ZmqTritonError as error:
                if not await self._has(version):
                    raise falcon.HTTPError(
                        404,
                        description=f"model '{model}' has no routes: write a routes.py next to "
                        "its model.py",
                    ) from None
                if time.monotonic() >= end_s or _has_failed(catalogue.versions().get(name)):
                    raise Unavailable(
                        f"the routes of model '{model}' are not loaded, see `zmqtriton-ctl "
                        f"explain`: {error.text}"
                    ) from None
            await asyncio.sleep(_AGAIN_S)

    async def _has(self, version: ModelVersion) -> bool:
        generation, has = self._has_routes.get(version.name, (-1, False))
        if generation != version.generation:
            code = await self._gateway.call(names.CODE, {"models": [version.name]})
            row = code.get(version.name)
            has = row is not None and await _threads.run(
                Path(row["directory"], str(row["version"]), names.FILE).is_file
            )
            self._has_routes[version.name] = version.generation, has
        return has


def _has_failed(versions: Sequence[ModelVersion] | None) -> bool:
    return bool(versions) and all(
        each.state not in ("LOADING", "READY") and each.reason is not None and not each.is_unloaded
        for each in versions or ()
    )


def _grant(req: HttpRequest, routed: str) -> Any:
    """Return the rights of a client, which may use the routes of each model it may use."""
    grant = req.grant
    return None if grant is None else grant._replace(models=(*grant.models, routed))


def _head(req: HttpRequest, place: _Place) -> bytes:
    headers = [
        (name.lower(), value.decode("latin-1"))
        for name, value in req.spelled_headers()
        if name.lower() not in ("authorization", *_OWN_HEADERS)
    ]
    document = {
        "method": req.method,
        "root": place.root,
        "path": place.path,
        "query": req.query_string,
        "scheme": req.scheme,
        "http_version": str(req.scope.get("http_version", "1.1")),
        "client": list(req.scope.get("client") or ()),
        "server": list(req.scope.get("server") or ()),
        "headers": headers,
    }
    return json.dumps(document).encode()


def _content(head: bytes, body: Any, model: ModelVersion) -> Content:
    inputs = [
        wire.Tensor(names.HEAD, _BYTES, [1], len(head).to_bytes(4, "little") + head),
        wire.Tensor(names.BODY, _UINT8, [len(body)], body),
    ]
    return Content(wire.RequestBody("", {}, [], inputs), is_counted=True)


class Answer:
    """The response of a route, in parts."""

    def __init__(self, req: HttpRequest, items: AsyncGenerator[StreamItem, None]) -> None:
        self._req = req
        self._items = items

    async def begin(self, resp: falcon.asgi.Response) -> None:
        """Respond with the first part, and others as they come. Raises the route's error."""
        item = await anext(self._items)
        outputs = _outputs(_body_of(item))
        self._write_head(resp, json.loads(bytes(outputs[names.HEAD][4:])))
        body = bytes(outputs[names.BODY])
        if len(body) > _LARGE_BYTES:
            await self._req.wait_for_room(len(body))
        if item.is_final:
            resp.data = body
            return
        resp.stream = _Parts(self, body)

    def _write_head(self, resp: falcon.asgi.Response, head: Mapping[str, Any]) -> None:
        resp.status = head["status"]
        resp.content_type = None
        for name, value in head["headers"]:
            if not (_HEADER.fullmatch(name) and _VALUE.fullmatch(value)):
                raise InternalError("the route has returned an invalid header: correct it")
            if name.lower() == "content-type":
                resp.content_type = value
            elif name.lower() not in _OWN_HEADERS:
                resp.append_header(name, value)

    async def part(self) -> bytes:
        """Return the next part, b"" at the end.

        Raises the route's error, so that the client sees that the response is incomplete.
        """
        item = await anext(self._items, None)
        if item is None:
            return b""
        body = item.content()
        data = b"" if body is None else bytes(_outputs(body)[names.BODY])
        if len(data) > _LARGE_BYTES:
            await self._req.wait_for_room(len(data))
        self._req.made(len(data))
        return data

    async def close(self) -> None:
        await self._items.aclose()


class _Parts:
    """The parts for Falcon, which awaits `close` in any case."""

    def __init__(self, answer: Answer, first: bytes) -> None:
        self._answer = answer
        self._first = first

    def __aiter__(self) -> _Parts:
        return self

    async def __anext__(self) -> bytes:
        part, self._first = self._first or await self._answer.part(), b""
        if not part:
            raise StopAsyncIteration
        return part

    async def close(self) -> None:
        await self._answer.close()


def _body_of(item: StreamItem | None) -> wire.ResponseBody:
    """Return the first part of a response, or raise its error."""
    body = None if item is None else item.content()
    if body is None:
        raise InternalError("the route has ended without a response: let it return one")
    return body


def _outputs(body: wire.ResponseBody) -> dict[str, Any]:
    return {tensor.name: tensor.data for tensor in body.outputs}
