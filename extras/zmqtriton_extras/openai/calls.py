"""The way of a request of OpenAI's API through the gateway: the same as that of generate.

Reads bodies, finds models, and lets requests be checked, traced and followed. text.py and
embeddings.py know their meaning. Also lists serving models and their adapters.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import Any, TypeVar

import falcon.asgi
import orjson

from zmqtriton.sdk.frontend import (
    ArenaBuffer,
    Ask,
    Content,
    Gateway,
    HttpEntrance,
    HttpRequest,
    ModelVersion,
    NotLoaded,
    StreamItem,
    bearer_tokens,
    json_documents,
)
from zmqtriton.sdk.wire import InvalidArgument, NotFound, wire
from zmqtriton_extras.openai import tensor_names
from zmqtriton_extras.openai.problems import ModelNotFound
from zmqtriton_extras.openai.tensor_names import ids_of, names_of

_T = TypeVar("_T")
#: Owner of models, in the words of Triton's frontend.
_OWNER = "Triton Inference Server"


class Calls:
    """The calls of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._entrance = HttpEntrance(gateway)
        self._max_input_size: int = gateway.settings.http.max_input_size

    async def read(self, req: HttpRequest, reader: Callable[[Any], _T]) -> _T:
        """Return the reader's result for the document of a request.

        May run the reader in a thread. Raises InvalidArgument, and the reader's errors.
        """
        # before anything is refused: an answer to half a body would be lost with the connection
        text = await req.read_body(self._max_input_size)
        _refuse_coding(req)
        return await json_documents.read(
            req.hold, text, lambda text: reader(json_documents.parse(text))
        )

    async def receive(self, req: HttpRequest) -> ArenaBuffer:
        """Return the body, a large one where models can read it. Raises InvalidArgument."""
        pieces, size = await req.read_pieces(self._max_input_size)
        _refuse_coding(req)
        return await self._gateway.payload.gather(pieces, size, 0, req.hold)

    async def find(self, req: HttpRequest, model: str) -> ModelVersion:
        """Find the model that a request names, if necessary after loading it.

        Raises ModelNotFound, Unavailable for a known model that does not serve, and Forbidden if
        the client's token may not use the model.
        """
        try:
            return await self._entrance.find(model, grant=req.grant, deadline_ns=req.deadline_ns)
        except (InvalidArgument, NotFound, NotLoaded):
            raise ModelNotFound(model) from None

    async def find_adapted(self, req: HttpRequest, name: str) -> tuple[ModelVersion, str]:
        """Find a model with the adapter that a request names with it, "" for none.

        Raises the errors of find().
        """
        model, adapter = tensor_names.split(self._gateway.catalogue, name)
        version = await self.find(req, model)
        if adapter and adapter not in tensor_names.adapters_of(names_of(version)):
            raise ModelNotFound(name)
        return version, adapter

    def current(self, model: str) -> ModelVersion:
        """Return the version that serves now; call this after a wait since find()."""
        try:
            return self._gateway.catalogue.find(model)
        except (InvalidArgument, NotFound):
            raise ModelNotFound(model) from None

    def begin(
        self, req: HttpRequest, model: ModelVersion, body: wire.RequestBody, begun_ns: int
    ) -> AsyncGenerator[StreamItem, None]:
        """Return the responses to a request; the version was found in this turn of the loop.

        Raises InvalidArgument if the request does not fit.
        """
        ask = Ask(
            (model.name, ""),
            lambda _: Content(body, is_counted=True),
            req.header,
            None,
            req.grant,
            req.deadline_ns,
            begun_ns,
            source=req.source,
        )
        return self._entrance.responses(self._entrance.enter(ask), req.arrivals())


def _refuse_coding(req: HttpRequest) -> None:
    coding = req.header(b"content-encoding")
    if coding is not None and coding.strip().lower() not in ("", "identity"):
        raise InvalidArgument("Unsupported content-encoding, only 'identity' is supported.")


async def together(tasks: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Return the results of all tasks; an error or a cancellation ends the others."""
    running = [asyncio.ensure_future(task) for task in tasks]
    try:
        return list(await asyncio.gather(*running))
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def as_it_is(events: bytes) -> bytes:
    """Return events of a stream that are written already, unchanged."""
    return events


class Models:
    """The responders of GET /v1/models and /v1/models/{model}."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._calls = Calls(gateway)

    async def list_all(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        seen = [
            m for m in self._gateway.catalogue.newest() if bearer_tokens.may_see(req.grant, m.name)
        ]
        documents = [self._describe(name) for model in seen for name in ids_of(model)]
        resp.data = orjson.dumps({"object": "list", "data": documents})

    async def show(self, req: HttpRequest, resp: falcon.asgi.Response, model: str) -> None:
        await self._calls.find_adapted(req, model)
        resp.data = orjson.dumps(self._describe(model))

    def _describe(self, name: str) -> dict[str, Any]:
        # when each was loaded is known to nobody here, and all workers must say the same
        created = self._gateway.settings.server.started_at
        return {"id": name, "object": "model", "created": created, "owned_by": _OWNER}
