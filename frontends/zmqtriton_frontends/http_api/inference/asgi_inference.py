"""POST .../infer for endpoints of add-ons, which pass their requests on to the application.

On the main endpoint a connection answers them itself (server/inference_exchange.py).
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import falcon.asgi

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_frontends.http_api.asgi.request import HttpRequest
from zmqtriton_frontends.http_api.inference import response_encoding
from zmqtriton_frontends.http_api.inference.heads import Answer, InferenceHead, read_head
from zmqtriton_frontends.http_api.inference.http_inference import HttpInference
from zmqtriton_frontends.http_api.inference.infer import Body, Inference
from zmqtriton_frontends.http_api.inference.response_encoding import Encoded


class AsgiInference(HttpInference):
    """An inference that a task waits for."""

    __slots__ = ("_answered", "_req")

    def __init__(self, inference: Inference, head: InferenceHead, req: HttpRequest) -> None:
        super().__init__(inference, head, req.begun_ns)
        self._req = req
        self._answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def answer(self, body: Body) -> Answer:
        self.begin(body)
        try:
            return await self._answered
        except asyncio.CancelledError:
            self.cancel()
            raise

    def hold(self, size: int) -> None:
        """Account for more memory, or for less. Raises Unavailable without any."""
        if not self._answered.done():  # else the share of the request was released
            self._req.hold(size)

    def _has_room(self, size: int) -> bool:
        connection = self._req.connection
        return connection is None or bool(connection.share.take(size))

    def _answer(self, status: int, encoded: Encoded) -> None:
        if not self._answered.done():
            self._answered.set_result((status, encoded))


class AsgiInferences:
    """The responder."""

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
            head = read_head(head)
            status, encoded = await AsgiInference(self._inference, head, req).answer(body)
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
