"""POST .../infer for endpoints of add-ons, which pass their requests on to the application.

On the main endpoint a connection answers such requests itself (server/inference_exchange.py).
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import falcon.asgi

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.entrance.ask import Ask
from zmqtriton_frontends.gateway.pending import Pending, Sink
from zmqtriton_frontends.http_api.asgi.request import HttpRequest
from zmqtriton_frontends.http_api.inference import response_encoding
from zmqtriton_frontends.http_api.inference.heads import Answer, InferenceHead, failure, read_head
from zmqtriton_frontends.http_api.inference.infer import Body, Inference
from zmqtriton_frontends.http_api.inference.response_encoding import Encoded, ResponseFormat


class AsgiSink(Sink):
    """Gives the response to a task."""

    __slots__ = ("_answered", "_head", "_req")

    sending = "HTTP_SEND"

    def __init__(self, head: InferenceHead, req: HttpRequest) -> None:
        self._head = head
        self._req = req
        self._answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def answer(self, inference: Inference, body: Body) -> Answer:
        """Return the response to a request with this body. Cancelling this cancels the request."""
        head, req, pending = self._head, self._req, Pending(inference.gateway, self)
        ask = Ask(
            target=head.target,
            read=partial(inference.read, self._hold, body, head.json_length),
            header=req.header,
            spelled_headers=req.spelled_headers,
            grant=req.grant,
            deadline_ns=head.timeout_ns and req.begun_ns + head.timeout_ns,
            begun_ns=req.begun_ns,
            steps=inference.reports if head.has_wishes else (),
            source=req.source,
        )
        inference.entrance.begin(ask, pending)
        try:
            return await self._answered
        except asyncio.CancelledError:
            pending.cancel()
            raise

    def _hold(self, size: int) -> None:
        if not self._answered.done():  # else the share of the request was released
            self._req.hold(size)

    def _has_room(self, size: int) -> bool:
        connection = self._req.connection
        return connection is None or bool(connection.share.take(size))

    async def respond(self, pending: Pending, response: ResponseBody, /) -> None:
        written = ResponseFormat(
            pending.model, pending.request_id, pending.form, self._head.accepted
        )
        self._answer(200, await written.encode_late(response, pending.reports, self._has_room))

    def refuse(self, error: Exception, /) -> None:
        self._answer(*failure(self._head, error))

    def _answer(self, status: int, encoded: Encoded) -> None:
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
            head = read_head(InferenceHead(target, req.path, req, size, limit))
            status, encoded = await AsgiSink(head, req).answer(self._inference, body)
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
