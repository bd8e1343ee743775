"""POST /v1/embeddings: texts in, a vector for each out.

Texts share inferences as far as the model takes several at once; some inferences run together, so
that the model can batch them, and one client does not fill its queue.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import aclosing
from functools import partial

import falcon.asgi

from zmqtriton_addons.web_apis.openai import vectors
from zmqtriton_addons.web_apis.openai.calls import Calls, together
from zmqtriton_addons.web_apis.openai.tensor_names import names_of
from zmqtriton_addons.web_apis.openai.vectors import Batch
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.http_api import Request
from zmqtriton_frontends.http_api.inference import json_documents
from zmqtriton_frontends.inference import now_ns

#: Inferences of one request that run together.
_AT_ONCE = 64
#: Bytes that an element may become in JSON.
_WRITTEN_BYTES = 12


class Embeddings:
    """The responder."""

    def __init__(self, gateway: Gateway) -> None:
        self._calls = Calls(gateway)

    async def embed(self, req: Request, resp: falcon.asgi.Response) -> None:
        begun_ns = now_ns()
        request = await self._calls.read(req, vectors.read)
        model = await self._calls.find(req, request.model)
        names = names_of(model)
        own_id = f"embd-{uuid.uuid4().hex}"
        room = asyncio.Semaphore(_AT_ONCE)

        async def infer(batch: Batch) -> Batch:
            async with room:
                current = self._calls.current(request.model)
                body = batch.body(own_id)
                async with aclosing(self._calls.begin(req, current, body, begun_ns)) as items:
                    async for item in items:
                        if item.error is not None:
                            raise item.error
                        if item.body is not None:
                            batch.take(item.body)
            return batch

        done = await together(map(infer, vectors.batches(names, request.texts)))
        size = sum(batch.size for batch in done) * _WRITTEN_BYTES
        write = partial(vectors.document, request.model, done, is_base64=request.is_base64)
        resp.data = await json_documents.perform(size, write)
        resp.set_header("x-request-id", own_id)
