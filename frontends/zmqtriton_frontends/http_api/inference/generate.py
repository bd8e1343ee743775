"""POST /v2/models/{model}/generate and /generate_stream: flat JSON in, flat JSON or events out.

For decoupled models and others alike. The first response decides the status; later errors are part
of the body. When a client goes away, the connection cancels the task, and that cancels the request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import falcon.asgi

from zmqtriton_floor.errors import InternalError, InvalidArgument
from zmqtriton_floor.wire import RequestBody
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.streams import StreamItem
from zmqtriton_frontends.http_api.asgi import problems
from zmqtriton_frontends.http_api.asgi.request import Request
from zmqtriton_frontends.http_api.inference import generate_request, json_documents
from zmqtriton_frontends.http_api.inference.generate_response import (
    Writer,
    error_document,
)
from zmqtriton_frontends.http_api.inference.server_sent_events import Events
from zmqtriton_frontends.http_api.inference.stage_time_headers import StageTimeHeaders
from zmqtriton_frontends.inference import admission
from zmqtriton_frontends.inference.catalogue import ModelVersion
from zmqtriton_frontends.inference.load_on_demand import NotLoaded
from zmqtriton_frontends.inference.request_trace import followed, now_ns
from zmqtriton_frontends.inference.trace_sampling import parent_in_headers

_NOT_ONE = InternalError(
    "generate expects model to produce exactly 1 response, use generate stream for model that "
    "generates various number of responses"
)


class Generate:
    """The two responders and the settings that they need."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._max_input_size: int = gateway.settings.http.max_input_size
        self._stage_time_headers = StageTimeHeaders(gateway)

    async def generate(
        self, req: Request, resp: falcon.asgi.Response, model: str, version: str = ""
    ) -> None:
        checked = await self._read(req, model, version)
        writer = Writer(checked.model, checked.body.request_id, req.wait_for_room)
        documents_written: list[bytes] = []
        async with aclosing(self._stream(req, checked)) as items:
            async for item in items:
                document, status = await writer.document(item)
                if not document:
                    continue
                if not documents_written:
                    resp.status = status
                    resp.set_headers(problems.headers(status))
                documents_written.append(document)
                if len(documents_written) > 1:
                    break  # and the request is cancelled
        if len(documents_written) == 1:
            resp.data = documents_written[0]
        else:
            resp.data = error_document(_NOT_ONE)
        resp.set_headers(
            await self._stage_time_headers.headers(req.header, checked.model, checked.stages)
        )

    async def generate_stream(
        self, req: Request, resp: falcon.asgi.Response, model: str, version: str = ""
    ) -> None:
        checked = await self._read(req, model, version)
        writer = Writer(checked.model, checked.body.request_id, req.wait_for_room)
        await self._send_events(req, resp, checked, writer)

    async def _send_events(
        self,
        req: Request,
        resp: falcon.asgi.Response,
        checked: admission.CheckedRequest,
        writer: Writer,
    ) -> None:
        """Answer with an event for each response; the first decides the status."""
        items = self._stream(req, checked)
        first = await anext(items)
        event, status = await writer.first_event(first)
        resp.status = status
        resp.set_headers(problems.headers(status))
        resp.content_type = "text/event-stream; charset=utf-8"
        resp.set_headers(
            await self._stage_time_headers.headers(req.header, checked.model, checked.stages)
        )
        if first.is_final:
            resp.data = event
        else:
            resp.stream = Events(event, items, writer.event, turn=req.turn, made=req.made)

    def _stream(
        self, req: Request, checked: admission.CheckedRequest
    ) -> AsyncGenerator[StreamItem, None]:
        checked = checked.with_arrivals(req.arrivals())
        return followed(self._gateway.stream(checked), checked.trace, "HTTP_SEND")

    async def _read(self, req: Request, model: str, version: str) -> admission.CheckedRequest:
        begun_ns = now_ns()
        # before anything is refused: an answer to half a body would be lost with the connection
        text = await req.read_body(self._max_input_size)
        try:
            return await self._check(req, text, (model, version), begun_ns)
        except NotLoaded as missing:
            await missing.load(req.deadline_ns)
        return await self._check(req, text, (model, version), begun_ns)

    def _parse(self, text: bytes, model: ModelVersion) -> RequestBody:
        """Parse a body; may run in a thread. Raises InvalidArgument."""
        return generate_request.read_text(text, model.signature.inputs)

    async def _check(
        self, req: Request, text: bytes, target: tuple[str, str], begun_ns: int
    ) -> admission.CheckedRequest:
        model, version = target
        model_version = self._gateway.catalogue.find(model, version)
        coding = req.header(b"content-encoding")
        if coding is not None and coding.strip().lower() not in ("", "identity"):
            raise InvalidArgument("Unsupported content-encoding, only 'identity' is supported.")
        body = await json_documents.read(
            text or b"{}", lambda text: self._parse(text, model_version)
        )
        options = admission.Options(deadline_ns=req.deadline_ns)
        # found again: while a thread read the document the model may have been reloaded
        model_version = self._gateway.catalogue.find(model, version)
        return self._admit(req, model_version, body, options, begun_ns)

    def _admit(
        self,
        req: Request,
        model: ModelVersion,
        body: RequestBody,
        options: admission.Options,
        begun_ns: int,
    ) -> admission.CheckedRequest:
        catalogue = self._gateway.catalogue
        checked = admission.prepare(catalogue, model, body, options, header=req.header)
        if req.grant is not None:
            checked = self._gateway.token_marks.mark(checked, req.grant)
        checked = self._stage_time_headers.expect(req.header, checked, begun_ns)
        traces = self._gateway.traces
        if traces.is_on:
            parent, begun = parent_in_headers(req.header), ("HTTP_RECV", begun_ns)
            return traces.follow(checked, parent, begun)
        return checked
