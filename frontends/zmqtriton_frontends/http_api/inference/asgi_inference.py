"""POST .../infer for endpoints of add-ons, which pass their requests on to the application.

On the main endpoint a connection answers such requests itself (server/inference_exchange.py).
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import falcon.asgi

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.pending import Pending
from zmqtriton_frontends.http_api.asgi.request import HttpRequest
from zmqtriton_frontends.http_api.inference import response_encoding
from zmqtriton_frontends.http_api.inference.heads import Answer, HttpSink, InferenceHead, read_head
from zmqtriton_frontends.http_api.inference.infer import Inference


class AsgiSink(HttpSink):
    """Gives the answer to a task."""

    __slots__ = ("_answered", "_req")

    def __init__(self, head: InferenceHead, req: HttpRequest, gateway: Gateway) -> None:
        self.head = head
        self.begun_ns = req.begun_ns
        self.pending = Pending(gateway, self)
        self._req = req
        self._answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def answered(self) -> Answer:
        """Return the answer. Cancelling this cancels the request."""
        try:
            return await self._answered
        except asyncio.CancelledError:
            self.pending.cancel()
            raise

    def hold(self, size: int) -> None:
        if not self._answered.done():  # else the share of the request was released
            self._req.hold(size)

    def _has_room(self, size: int) -> bool:
        connection = self._req.connection
        return connection is None or bool(connection.share.take(size))

    async def respond(self, pending: Pending, response: ResponseBody, /) -> None:
        written = response_encoding.ResponseFormat(
            pending.model, pending.request_id, pending.form, self.head.accepted
        )
        self.answer(200, await written.encode_late(response, pending.reports, self._has_room))

    def answer(self, status: int, encoded: response_encoding.Encoded) -> None:
        if not self._answered.done():
            self._answered.set_result((status, encoded))


class AsgiInferences:
    """The responder for inferences."""

    def __init__(self, inference: Inference) -> None:
        self._inference = inference

    async def infer(
        self, req: HttpRequest, resp: falcon.asgi.Response, model: str, version: str = ""
    ) -> None:
        # before anything is refused: an answer to half a body would be lost with the connection
        with await self._inference.receive(req) as body:
            limit = self._inference.max_input_size
            target, size = (model, version), len(body)
            head = InferenceHead(
                target, req.path, req, size, limit, grant=req.grant, source=req.source
            )
            head = read_head(head, self._inference.reports)
            sink = AsgiSink(head, req, self._inference.gateway)
            self._inference.begin(sink, body)
            status, encoded = await sink.answered()
        headers, text, tail = encoded
        resp.status = status
        resp.set_headers(headers)
        size = sum(map(len, tail))
        if size > INLINE_BYTES and req.connection is not None:
            resp.content_length = len(text) + size
            pieces: Any = response_encoding.pieces(text, tail, time.monotonic)
            resp.stream = pieces  # not bytes, but what our side of ASGI takes
        else:
            resp.data = b"".join((text, *tail)) if tail else text
