"""Serves functions over HTTP: POST /NAME calls one with JSON, a form or a file; GET shows it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import falcon
import falcon.asgi

from zmqtriton.sdk.frontend import (
    MIN_BYTES,
    ArenaBody,
    ArenaBuffer,
    ByteBudget,
    Gateway,
    HttpEntrance,
    HttpExtension,
    HttpRequest,
    ModelVersion,
    NotLoaded,
    Operation,
    Route,
    RouteDescriptions,
    TooLarge,
    bearer_tokens,
    infer,
    json_documents,
)
from zmqtriton.sdk.wire import (
    InvalidArgument,
    NotFound,
    Unavailable,
    ZmqTritonError,
    arrays,
    clipped,
    documents,
    errors,
)
from zmqtriton_extras.functions import bodies, files
from zmqtriton_extras.functions.backend.kinds import MismatchError, Place
from zmqtriton_extras.functions.backend.names import DESCRIPTION
from zmqtriton_extras.functions.example_requests import example_for
from zmqtriton_extras.functions.interface import Interface, Request, interface_of
from zmqtriton_extras.functions.urls import NotFetched, Urls
from zmqtriton_extras.routes.backend.multipart import RefusedError
from zmqtriton_standard.cockpit.pages import Pages
from zmqtriton_standard.generate.response import Events, as_event

#: Any path that no other route has. Routes of models have the same path.
_PATH = "/{path:path}"
#: Content types of a response to GET.
_PAGE_OR_SCHEMA = ("application/json", "text/html")
#: Bytes at the beginning of a form that are searched for its first file.
_HEAD_BYTES = 4096
#: A name in the place of an error, and a line of an error with place and text.
_NAME = re.compile(r"'[^']*'|[^.:']+")
_PLACED = re.compile(rf"(?P<place>(?:{_NAME.pattern})(?:\.(?:{_NAME.pattern}))*): (?P<text>.*)")
#: Numbers of the errors for a name that no model has.
_UNKNOWN = (InvalidArgument.number, NotFound.number)


class Functions:
    """Responds to requests at the paths of functions."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._entrance = HttpEntrance(gateway)
        self._max_bytes: int = gateway.settings.http.max_input_size
        self._budget = ByteBudget()
        hosts = gateway.settings.option("functions_url_host") or ()
        self._urls = Urls(tuple(hosts), self._max_bytes)
        has_pages = gateway.settings.option("allow_web_page")
        self._pages = Pages(Path(files.__path__[0])) if has_pages else None

    def is_there(self, path: str) -> bool:
        """Return whether a path is the name of a function, or of a model that could be one."""
        try:
            model = self._gateway.catalogue.find(path)
        except ZmqTritonError as error:
            may_be = isinstance(error, NotLoaded) or error.number not in _UNKNOWN
            return may_be and "/" not in path
        return interface_of(model.config) is not None

    async def call(self, req: HttpRequest, resp: falcon.asgi.Response, path: str) -> None:
        """Respond to a request at /NAME: call or describe the function, or respond 404."""
        if not (await self._try(req, resp, path) or self._show_model(req, resp, path)):
            await req.drop_body()
            raise falcon.HTTPNotFound

    async def _try(self, req: HttpRequest, resp: falcon.asgi.Response, path: str) -> bool:
        """Respond if the path is the name of a function, and return whether it is."""
        try:
            model = await self._entrance.find(path, grant=req.grant, deadline_ns=req.deadline_ns)
        except ZmqTritonError as error:
            if error.number in _UNKNOWN:
                return False
            await req.drop_body()
            raise
        interface = interface_of(model.config)
        if interface is None:
            return False
        if req.method == "POST":
            await self._call(req, resp, model, interface)
        elif req.method not in ("GET", "HEAD"):
            raise falcon.HTTPError(405, headers={"Allow": "GET, HEAD, POST"})
        elif not self._show(req, resp):
            resp.set_header("Vary", "Accept")
            resp.data = json_documents.write(_operation(self._gateway, model.name, interface))
        return True

    def _show(self, req: HttpRequest, resp: falcon.asgi.Response) -> bool:
        """Respond with the page if the client is a browser, and return whether it is."""
        # the default comes first: `*/*` of curl is no wish for a page
        if self._pages is None or req.client_prefers(_PAGE_OR_SCHEMA) != _PAGE_OR_SCHEMA[1]:
            return False
        self._pages.send(req, resp, "function.html")
        return True

    def has_page(self, path: str) -> bool:
        """Return whether a path is the name of a model, which is a function or of tensors."""
        try:
            self._gateway.catalogue.find(path)
        except ZmqTritonError as error:
            return isinstance(error, NotLoaded) or self.is_there(path)
        return True

    def _show_model(self, req: HttpRequest, resp: falcon.asgi.Response, path: str) -> bool:
        """Respond with the page of a model that is not a function, and return whether it is one."""
        is_seen = bearer_tokens.may_see(req.grant, path) and self.has_page(path)
        return is_seen and req.method in ("GET", "HEAD") and self._show(req, resp)

    async def _call(
        self,
        req: HttpRequest,
        resp: falcon.asgi.Response,
        model: ModelVersion,
        interface: Interface,
    ) -> None:
        accepted = req.client_prefers(interface.offers)
        if accepted is None:
            await req.drop_body()
            text = f"the function answers with {', '.join(dict.fromkeys(interface.offers))}"
            raise falcon.HTTPNotAcceptable(description=text)
        kind = req.header(b"content-type") or ""
        head = bodies.NO_HEAD if bodies.file_for(interface, kind) else b""
        try:
            with await self._body(req, head, has_file=bool(head) or bodies.is_form(kind)) as body:
                inputs = await self._read(req, interface, kind, body, model.config)
                await self._answer(req, resp, model, interface, inputs, accepted)
        except RefusedError as error:
            resp.status, resp.data = error.args[0], json_documents.write({"error": error.args[1]})
        except TooLarge:
            text = f"the body has more than the {self._max_bytes} bytes of --http-max-input-size"
            resp.status, resp.data = 413, json_documents.write({"error": text})
        except (MismatchError, InvalidArgument) as error:
            resp.status, resp.data = 422, _refusal(interface, str(error))

    async def _body(self, req: HttpRequest, head: bytes, *, has_file: bool) -> ArenaBuffer:
        """Receive the body after `head`. Files are in shared memory, where models read them."""
        coding, limit = req.header(b"content-encoding"), self._max_bytes
        size = int(req.header(b"content-length") or 0)
        if has_file and coding is None and MIN_BYTES <= size <= limit:
            return await self._large_body(req, head, size)
        pieces: list[Any]
        pieces, size = await req.read_pieces(limit)
        if coding is not None:
            whole = b"".join(pieces)
            pieces = [await infer.inflate(whole, coding, limit, req.client, hold=req.hold)]
            size = len(pieces[0])
        pieces[:0] = [head][not head :]
        size += len(head)
        return await self._gateway.payload.gather(pieces, size, 0 if has_file else size, req.hold)

    async def _large_body(self, req: HttpRequest, head: bytes, size: int) -> ArenaBuffer:
        """Receive a large body after `head` directly into shared memory, without a copy."""
        form = ArenaBody(self._gateway.payload, len(head) + size, self._budget, _file_at)
        try:
            read = req.begin_body()
            form.add(memoryview(b"".join([head, *read.pieces])))
            while read.has_more:
                read.pieces.clear()
                await req.read_piece(read, size)
                form.add(memoryview(b"".join(read.pieces)))
            if read.is_refused:
                raise MemoryError
        except BaseException as error:
            form.drop()
            if isinstance(error, MemoryError):
                raise Unavailable(errors.NO_MEMORY) from None
            raise
        whole = form.whole()
        req.hold(-size if whole.is_shared else 0)
        return whole

    async def _read(
        self,
        req: HttpRequest,
        interface: Interface,
        kind: str,
        body: Any,
        config: Mapping[str, Any],
    ) -> Request:
        files: dict[str, bytes] = {}
        query = req.scope["query_string"]

        def fetch(url: str) -> bytes:
            if url not in files:
                raise NotFetched(url)
            return files[url]

        def read() -> Request:
            request = bodies.read(interface, kind, body, fetch if self._urls else None, query)
            tensors = {each.name: each for each in arrays.to_tensors(request.inputs, config)}
            for each in request.inputs.values():
                documents.empty(each)
            return request._replace(inputs=tensors)

        while True:
            try:
                async with json_documents.room_for(req.hold, b"" if bodies.is_form(kind) else body):
                    return await json_documents.perform(len(body), read)
            except NotFetched as needed:
                with Place(".".join(needed.place)):
                    files[needed.url] = await self._urls.fetch(needed.url)
                req.hold(len(files[needed.url]))

    async def _answer(
        self,
        req: HttpRequest,
        resp: falcon.asgi.Response,
        model: ModelVersion,
        interface: Interface,
        request: Request,
        accepted: str,
    ) -> None:
        async def write(outputs: dict[str, Any]) -> bytes:
            size = sum(map(_size, outputs.values()))
            data: bytes = await json_documents.perform(size, _write, interface, outputs)
            if size > json_documents.LARGE_BYTES:
                await req.wait_for_room(len(data))
            return as_event(data) if interface.is_stream else data

        inputs, more = request
        if not interface.is_stream:
            answer = await self._entrance.infer(req, model.name, inputs, parameters=more)
            if accepted == interface.offers[0]:
                resp.data = await write(answer)
            elif (file := interface.file(answer)) is None:
                resp.status = 204
            else:
                await req.wait_for_room(len(file[0]))
                resp.data, resp.content_type = file
                resp.set_header("X-Content-Type-Options", "nosniff")
            return
        answers: Any = self._entrance.stream(req, model.name, inputs, parameters=more)
        try:
            outputs = await anext(answers, None)
            first = b"" if outputs is None else await write(outputs)
        except BaseException:
            await answers.aclose()
            raise
        resp.content_type = "text/event-stream; charset=utf-8"
        resp.stream = Events(first, answers, write, turn=req.turn, made=req.made)

    def around(self, route: Route) -> Route:
        """Return a route that serves functions first, and passes other paths to the given route."""
        inner = route.responder

        @wraps(inner)
        async def respond(req: HttpRequest, resp: falcon.asgi.Response, path: str) -> None:
            if self.is_there(path) and await self._try(req, resp, path):
                return
            try:
                await inner(req, resp, path=path)
            except falcon.HTTPNotFound:
                if not self._show_model(req, resp, path):
                    raise

        return route._replace(responder=respond)


def _file_at(beginning: Any) -> int:
    """Return the offset of the first file in a form; 0 if its first bytes do not show it."""
    head = bytes(beginning[:_HEAD_BYTES])
    # the end of its head becomes its length
    return max(head.find(b"\r\n\r\n", head.find(b"filename=")), 0)


def _write(interface: Interface, outputs: Mapping[str, Any]) -> bytes:
    data = interface.write(outputs)
    for each in outputs.values():
        documents.empty(each)
    return data


def _size(array: Any) -> int:
    """Return the size of an output in bytes. For long arrays of texts, count only references."""
    is_short = array.dtype.hasobject and array.nbytes < json_documents.LARGE_BYTES
    return int(array.nbytes) + (sum(map(len, array.flat)) if is_short else 0)


def _refusal(interface: Interface, text: str) -> bytes:
    """Return the JSON of a 422 response, with the place and text of each wrong argument."""
    lines = clipped(text).split("\n")
    rows = [match for match in map(_PLACED.fullmatch, lines) if match]
    paths = [[part.strip("'") for part in _NAME.findall(row["place"])] for row in rows]
    detail = [
        {"loc": path, "msg": row["text"]}
        for row, path in zip(rows, paths, strict=True)
        if path[0] in interface.input["properties"] or row["place"].startswith("'")
    ]
    return bytes(json_documents.write({"error": "; ".join(lines), "detail": detail}))


def _around(gateway: Gateway, table: list[Route]) -> Sequence[Route]:
    functions = Functions(gateway)
    if any(route.path == _PATH for route in table):
        return [functions.around(route) if route.path == _PATH else route for route in table]
    own = Route("POST", _PATH, "inference", functions.call, is_there=functions.is_there)
    return [*table, own, own._replace(method="GET", is_there=functions.has_page)]


_DESCRIPTIONS = RouteDescriptions(
    {
        "Functions.call": Operation("Call the function with this name, by POST; GET describes it"),
    }
)


def _operation(gateway: Gateway, name: str, interface: Interface) -> dict[str, Any]:
    operation = interface.operation(name, example_for(interface.input, interface.examples))
    if gateway.settings.access.tokens:
        operation["security"] = [{"token": []}]
    return operation


async def _describe(gateway: Gateway, req: HttpRequest, document: dict[str, Any]) -> None:
    """Add each function that the client may see to /openapi.json."""
    for model in gateway.catalogue.newest():
        interface = interface_of(model.config) if DESCRIPTION in model.config_text else None
        if interface is not None and bearer_tokens.may_see(req.grant, model.name):
            operation = _operation(gateway, model.name, interface)
            document["paths"][f"/{model.name}"] = {"post": operation}
            document["tags"].append({"name": model.name})


EXTENSION = HttpExtension(around=_around, descriptions=lambda _: _DESCRIPTIONS, describe=_describe)
