"""POST /v2/models/{model}/infer, and its parts for small requests, which take the fast path.

Reads the body, has it checked, waits for the gateway and writes the response. When a client goes
away, the connection cancels the task, and the gateway then cancels the request.
"""

from __future__ import annotations

import time
from typing import Any

import falcon.asgi

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.errors import Unsupported
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.http1.heads import MAX_BODY_BYTES
from zmqtriton_frontends.http_api.asgi.request import Request, too_large
from zmqtriton_frontends.http_api.inference import (
    binary,
    compression,
    infer_request,
    json_documents,
    large_answer,
)
from zmqtriton_frontends.http_api.inference.infer_request import InferRequest, OutputForm
from zmqtriton_frontends.http_api.inference.report import Report
from zmqtriton_frontends.http_api.inference.response_encoding import (
    Encoded,
    ResponseFormat,
    size_of,
)
from zmqtriton_frontends.inference import admission
from zmqtriton_frontends.inference.catalogue import ModelVersion
from zmqtriton_frontends.inference.header_forwarding import Forwarding
from zmqtriton_frontends.inference.load_on_demand import NotLoaded
from zmqtriton_frontends.inference.request_trace import ending, now_ns
from zmqtriton_frontends.inference.trace_sampling import parent_in_headers
from zmqtriton_frontends.tensors.arena_body import ArenaBuffer

#: A whole request; a view if it lies in shared memory.
Body = bytes | memoryview

JSON_LENGTH = binary.HEADER.lower().encode()


class Inference:
    """The responder and the settings that it needs."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._max_input_size: int = gateway.settings["http_max_input_size"]
        self._forwarding = Forwarding(
            gateway.settings["http_header_forward_pattern"],
            hides_tokens=bool(gateway.settings["tokens"]),
        )
        self._report = Report(gateway)

    async def infer(
        self, req: Request, resp: falcon.asgi.Response, model: str, version: str = ""
    ) -> None:
        begun_ns = now_ns()
        # before anything is refused: an answer to half a body would be lost with the connection
        with await self.receive(req, resp) as body:
            try:
                await self._infer(req, resp, (model, version), body, begun_ns)
            except NotLoaded as missing:
                await missing.load(req.deadline_ns)
                await self._infer(req, resp, (model, version), body, begun_ns)

    async def receive(self, req: Request, resp: falcon.asgi.Response) -> ArenaBuffer:
        """Receive a body, inflated, with its tensors where the model can read them."""
        read = req.begin_body()
        length = req.header(JSON_LENGTH)
        limit = self._max_input_size if length is None else MAX_BODY_BYTES
        pieces: list[Any]
        pieces, size = await req.read_pieces(limit, read)
        coding = req.header(b"content-encoding")
        if coding is not None:
            pieces = [await self._inflate(req, resp, b"".join(pieces), coding)]
            size = len(pieces[0])
        tensors_at = size if length is None else binary.tensors_at(length, size)
        if size - tensors_at <= INLINE_BYTES:
            return ArenaBuffer(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        return await self._gateway.payload.gather(pieces, size, tensors_at)

    async def _infer(
        self,
        req: Request,
        resp: falcon.asgi.Response,
        target: tuple[str, str],
        body: Body,
        begun_ns: int,
    ) -> None:
        request, options, form = await self.read(req, self.find(target), body)
        # found again: while a thread read the document the model may have been reloaded
        model = self.find(target)
        checked = admission.prepare(
            self._gateway.catalogue, model, request, options, form.places, req.header
        )
        traces = self._gateway.traces
        if traces.is_on:
            parent, begun = parent_in_headers(req.header), ("HTTP_RECV", begun_ns)
            checked = traces.follow(checked, parent, begun)
        checked = self._report.expect(req, checked, begun_ns)
        with ending(checked.trace, "HTTP_SEND"):
            await self._respond(req, resp, checked, form)

    async def read(self, req: Request, model: ModelVersion, body: Body) -> InferRequest:
        """Read the request of a body and of forwarded headers. Raises InvalidArgument."""
        header = req.header(JSON_LENGTH)
        length = None if header is None else binary.json_length(header, len(body))
        size = len(body) if length is None else length
        if size < json_documents.LARGE_BYTES:
            parsed = self.parse(model, body, length)
        else:
            parsed = await json_documents.aside(size, self.parse, model, body, length)
        if self._forwarding:
            self._forwarding.add(parsed[0].parameters, req.spelled_headers())
        request, options, form = parsed
        return request, options._replace(deadline_ns=req.deadline_ns), form

    async def _respond(
        self,
        req: Request,
        resp: falcon.asgi.Response,
        checked: admission.CheckedRequest,
        form: OutputForm,
    ) -> None:
        response = await self._gateway.infer(checked)
        if checked.trace is not None:
            checked.trace.mark("INFER_RESPONSE_COMPLETE")
        wanted = ResponseFormat(checked, form, req.header(b"accept-encoding"))
        if wanted.takes_long(response):
            await req.wait_for_room(size_of(response))
            _answer(req, resp, await wanted.encode_aside(response))
        else:
            _answer(req, resp, wanted.encode(response))
        await self._report.add(req, resp, checked)

    # ------------------------------------------- what fast_path.py does too, one after the other

    def find(self, target: tuple[str, str]) -> ModelVersion:
        """Find the model of an inference over HTTP.

        Raises what Catalogue.find raises, and Unsupported for one that may answer more than once.
        """
        found = self._gateway.catalogue.find(*target)
        if found.signature.is_decoupled:
            raise Unsupported(
                "HTTP end point doesn't support models with decoupled transaction policy. "
                "Use generate_stream or infer_stream, or ModelStreamInfer over gRPC"
            )
        return found

    def parse(self, model: ModelVersion, body: Body, json_length: int | None) -> InferRequest:
        """Parse a body that begins with so many bytes of JSON, or is all JSON.

        May run in a thread. Raises InvalidArgument.
        """
        if json_length is None:
            return infer_request.read(json_documents.parse(bytes(body)), None)
        if json_length == 0:
            if len(body) > self._max_input_size:
                raise too_large("raw input", len(body), self._max_input_size)
            raw = binary.raw_request(model, body)
            return raw, admission.Options(), OutputForm({}, default=True)
        if json_length > self._max_input_size:
            raise too_large("JSON", json_length, self._max_input_size)
        tail = binary.Tail(memoryview(body)[json_length:], model.name)
        return infer_request.read(json_documents.parse(bytes(body[:json_length])), tail)

    async def _inflate(
        self, req: Request, resp: falcon.asgi.Response, body: bytes, coding: str
    ) -> bytes | bytearray:
        try:
            return await compression.inflate(
                body, coding, self._max_input_size, req.client, hold=req.hold
            )
        except Unsupported:
            resp.set_header("Accept-Encoding", "gzip, deflate")
            raise


def _answer(req: Request, resp: falcon.asgi.Response, encoded: Encoded) -> None:
    headers, text, tail = encoded
    resp.set_headers(headers)
    size = sum(map(len, tail))
    if size > INLINE_BYTES and req.connection is not None:
        resp.content_length = len(text) + size
        body: Any = large_answer.pieces(text, tail, time.monotonic)
        resp.stream = body  # not bytes, but what our side of ASGI takes
    else:
        resp.data = b"".join((text, *tail)) if tail else text
