"""POST /v2/models/{model}/infer: the one hot path of this frontend.

Reads the body, has it checked, waits for the gateway and writes the response. A client that goes
away has gunicorn cancel the task, and the gateway then cancels the request.
"""

from __future__ import annotations

import time

import falcon.asgi

from zmqtriton_floor.errors import Unsupported
from zmqtriton_floor.memory import INLINE_BYTES
from zmqtriton_frontends import kserve
from zmqtriton_frontends.catalogue import ModelVersion
from zmqtriton_frontends.classification import classify
from zmqtriton_frontends.forwarding import Forwarding
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.http_api import (
    binary,
    compression,
    documents,
    infer_request,
    intake,
    outgoing,
)
from zmqtriton_frontends.http_api.infer_request import InferRequest, OutputForm
from zmqtriton_frontends.http_api.infer_response import WrittenResponse, write
from zmqtriton_frontends.http_api.request import MAX_BODY_BYTES, Request, too_large
from zmqtriton_frontends.payload import Gathered

#: Of a request, whole; a view where it lies in shared memory.
Body = bytes | memoryview


class Inference:
    """The responder and what it needs of the settings."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._max_input_size: int = gateway.settings["http_max_input_size"]
        self._forwarding = Forwarding(gateway.settings["http_header_forward_pattern"])

    async def infer(
        self, req: Request, resp: falcon.asgi.Response, model: str, version: str = ""
    ) -> None:
        # Before anything is refused: an answer to half a body would be lost with the connection.
        with await self._receive(req, resp) as body:
            await self._infer(req, resp, (model, version), body)

    async def _receive(self, req: Request, resp: falcon.asgi.Response) -> Gathered:
        read = req.begin_body()
        if read.has_more:
            straight = await intake.straight(req, self._gateway, read)
            if straight is not None:
                return straight
        length = req.header(b"inference-header-content-length")
        limit = self._max_input_size if length is None else MAX_BODY_BYTES
        pieces, size = await req.read_pieces(limit, read)
        coding = req.header(b"content-encoding")
        if coding is not None:
            pieces = [self._inflate(resp, b"".join(pieces), coding)]
            size = len(pieces[0])
        tensors_at = size if length is None else binary.tensors_at(length, size)
        if size - tensors_at <= INLINE_BYTES:
            return Gathered(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        return await self._gateway.payload.gather(pieces, size, tensors_at)

    async def _infer(
        self, req: Request, resp: falcon.asgi.Response, target: tuple[str, str], body: Body
    ) -> None:
        model, version = target
        length = req.header(b"inference-header-content-length")
        found = self._gateway.catalogue.find(model, version)
        if found.signature.is_decoupled:
            raise Unsupported(
                "HTTP end point doesn't support models with decoupled transaction policy"
            )
        if length is None:
            parsed = await documents.read(bytes(body), _read_json)
        else:
            parsed = await self._read_binary(found, body, length)
        if self._forwarding:
            self._forwarding.add(parsed.body.parameters, req.spelled_headers())

        checked = kserve.prepare(
            self._gateway.catalogue,
            model,
            version,
            parsed.body,
            parsed.options,
            parsed.form.places,
        )
        response = await self._gateway.infer(checked)
        if parsed.form.classes:
            response = classify(checked.model, response, parsed.form.classes)
        written = write(checked.model, parsed.body.request_id, response, parsed.form)
        _answer(req, resp, written)

    def _inflate(self, resp: falcon.asgi.Response, body: bytes, coding: str) -> bytes:
        try:
            return compression.inflate(body, coding, self._max_input_size)
        except Unsupported:
            resp.set_header("Accept-Encoding", "gzip, deflate")
            raise

    async def _read_binary(self, model: ModelVersion, body: Body, header: str) -> InferRequest:
        length = binary.json_length(header, len(body))
        if length == 0:
            if len(body) > self._max_input_size:
                raise too_large("raw input", len(body), self._max_input_size)
            raw = binary.raw_request(model, body)
            return InferRequest(raw, kserve.Options(), OutputForm({}, default=True))
        if length > self._max_input_size:
            raise too_large("JSON", length, self._max_input_size)
        tail = binary.Tail(memoryview(body)[length:], model.name)
        document = await documents.read(bytes(body[:length]), documents.parse)
        return infer_request.read(document, tail)


def _read_json(text: bytes) -> InferRequest:
    return infer_request.read(documents.parse(text), None)


def _answer(req: Request, resp: falcon.asgi.Response, written: WrittenResponse) -> None:
    text, tail = written
    size = sum(map(len, tail))
    if tail:
        resp.content_type = "application/octet-stream"
        resp.set_header(binary.HEADER, str(len(text)))
    accepted = req.header(b"accept-encoding")
    coding = compression.choose(accepted) if accepted is not None else ""
    if size > INLINE_BYTES and not coding and req.connection is not None:
        resp.content_length = len(text) + size
        resp.stream = outgoing.pieces(text, tail, time.monotonic)
        return
    data = b"".join((text, *tail)) if tail else text
    if coding:
        data = compression.deflate(data, coding)
        resp.set_header("Content-Encoding", coding)
    resp.data = data
