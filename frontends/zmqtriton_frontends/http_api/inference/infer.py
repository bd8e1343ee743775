"""The settings that a process's inferences over HTTP share, and the reading of their bodies.

A body may have a content coding. The sink of an inference does the rest.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from zmqtriton_floor.arrays import to_arrays, to_tensors
from zmqtriton_floor.datatypes import BYTES
from zmqtriton_floor.errors import InternalError, InvalidArgument, Unsupported
from zmqtriton_floor.wire import RequestBody, make
from zmqtriton_frontends.entrance.ask import Ask, Content, TakesLong
from zmqtriton_frontends.entrance.entrance import Entrance
from zmqtriton_frontends.entrance.reports import Reports
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.http1 import MAX_BODY_BYTES
from zmqtriton_frontends.http_api.asgi.request import HttpRequest, TooLarge, too_large
from zmqtriton_frontends.http_api.inference import infer_request, json_documents, tensor_data
from zmqtriton_frontends.http_api.inference.heads import Fields, HttpSink
from zmqtriton_frontends.inference import admission
from zmqtriton_frontends.inference.model_version import ModelVersion
from zmqtriton_frontends.inference.request_trace import now_ns
from zmqtriton_frontends.process import codecs
from zmqtriton_frontends.tensors.arena_body import ArenaBuffer

#: A whole request; a view if it lies in shared memory.
Body = bytes | bytearray | memoryview


class Inference:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.max_input_size: int = gateway.settings.http.max_input_size
        self.entrance = HttpEntrance(gateway)
        #: The step of requests whose clients want reports beside the answer.
        self.reports = Reports(gateway, "latin-1")

    def read(
        self,
        hold: json_documents.Hold,
        body: Body,
        json_length: int | str | None,
        model: ModelVersion,
        *,
        takes_streams: bool = False,
    ) -> Content:
        """Read a body that begins with `json_length` bytes of JSON, or is all JSON.

        `json_length` may be the text of its header, `hold` changes the memory that is accounted
        for. Raises InvalidArgument, Unsupported for a model that may answer more than once to a
        client that takes one response, and TakesLong for much JSON, which is read by a thread.
        """
        if isinstance(json_length, str):
            json_length = tensor_data.json_length(json_length, len(body))
        if model.signature.is_decoupled and not takes_streams:
            raise Unsupported(
                "HTTP end point doesn't support models with decoupled transaction policy. "
                "Use generate_stream or infer_stream, or ModelStreamInfer over gRPC"
            )
        if json_length is not None:
            layout = model.layouts.get(len(body))
            if layout is not None and layout.head_bytes == json_length:
                request = layout.read(body)
                if request is not None:
                    return make(Content, (request, *layout.content, layout))
        size = len(body) if json_length is None else json_length
        if size < json_documents.LARGE_BYTES:
            return self._parse(body, json_length, model)
        read = partial(self._parse, body, json_length, model, is_aside=True)
        raise TakesLong(json_documents.aside_with_room(hold, memoryview(body)[:size], read))

    def _parse(
        self, body: Body, json_length: int | None, model: ModelVersion, *, is_aside: bool = False
    ) -> Content:
        """Read a body whose JSON is parsed; aside, by a thread."""
        tail, limit = None, self.max_input_size
        if json_length:
            if json_length > limit:
                raise too_large("JSON", json_length, limit)
            tail = tensor_data.Tail(memoryview(body)[json_length:], model.name)
        if json_length == 0:
            if len(body) > limit:
                raise too_large("raw input", len(body), limit)
            form = infer_request.OutputForm({}, default=True)
            request, options = tensor_data.raw_request(model, body), admission.NO_OPTIONS
        elif is_aside:
            with json_documents.opened(bytes(body[:json_length])) as document:
                request, options, form = infer_request.read(document, tail)
        else:
            text = bytes(body[:json_length])
            request, options, form = infer_request.read(json_documents.parse(text), tail)
            size, layouts = len(body), model.layouts
            if json_length and not form.places and layouts.is_common(size, request):
                before = [text, *[b""] * (len(request.inputs) - 1)]
                layouts.learn(size, size, before, request, (options, form.places, form, False))
        return make(Content, (request, options, form.places, form, False, None))

    def begin(self, sink: HttpSink, body: Body) -> None:
        """Begin the request with this body, which may be answered before this returns."""
        head, begun_ns = sink.head, sink.begun_ns
        read = partial(self.read, sink.hold, body, head.json_length)
        deadline_ns = head.timeout_ns and begun_ns + head.timeout_ns
        ask = (head.target, read, *head.facts, deadline_ns, begun_ns, *head.rest)
        self.entrance.begin(make(Ask, ask), sink.pending)

    # ------------------------------------------------------------- requests that Falcon has

    async def receive(self, req: HttpRequest) -> ArenaBuffer:
        """Receive a body and inflate it; its tensors are placed where the model can read them."""
        length = req.header(tensor_data.JSON_LENGTH)
        limit = self.max_input_size if length is None else MAX_BODY_BYTES
        pieces, _ = await req.read_pieces(limit)
        return await self.place(pieces, req, req.client, req.hold)

    async def place(
        self, pieces: list[Any], fields: Fields, client: object, hold: json_documents.Hold
    ) -> ArenaBuffer:
        """Return a body inflated, with its tensors where the model can read them; drop the pieces.

        `hold` changes the memory that is accounted for.
        """
        coding, length = fields.header(b"content-encoding"), fields.header(tensor_data.JSON_LENGTH)
        if coding is not None:
            body = b"".join(pieces)
            pieces[:] = [await inflate(body, coding, self.max_input_size, client, hold=hold)]
            del body
        size = sum(map(len, pieces))
        tensors_at = size if length is None else tensor_data.tensors_at(length, size)
        return await self.gateway.payload.gather(pieces, size, tensors_at, hold)


class HttpEntrance(Entrance):
    """The entrance of HTTP; also for requests that routes of add-ons make for clients."""

    def __init__(self, gateway: Gateway) -> None:
        pattern = gateway.settings.http.header_forward_pattern
        super().__init__(gateway, "HTTP_RECV", "HTTP_SEND", pattern)

    async def infer(
        self,
        req: HttpRequest,
        model: str,
        inputs: Mapping[str, Any],
        **more: Any,
    ) -> dict[str, Any]:
        """Send a client's request to a model, if its token allows; return the outputs by name.

        Inputs are arrays, or what numpy makes arrays of. `more` may be `version`, `outputs` with
        the names of the requested outputs, `parameters` and `request_id`. Raises the errors that a
        client of `/infer` gets.
        """
        answers = self.stream(req, model, inputs, **more)
        async with aclosing(answers) as stream:
            async for outputs in stream:
                return outputs
        raise InternalError(f"model '{model}' has sent no response; see its log")

    async def stream(
        self,
        req: HttpRequest,
        model: str,
        inputs: Mapping[str, Any],
        *,
        version: str = "",
        outputs: tuple[str, ...] = (),
        parameters: Mapping[str, Any] | None = None,
        request_id: str = "",
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Return the outputs of each response; a model that is not decoupled has one."""
        fields = request_id, dict(parameters or {}), list(outputs)
        ask = Ask(
            (model, version),
            lambda model: Content(
                RequestBody(*fields, to_tensors(inputs, model.config)), is_counted=True
            ),
            req.header,
            req.spelled_headers,
            req.grant,
            req.deadline_ns,
            now_ns(),
            source=req.source,
        )
        items = self.responses(await self.admit(ask), req.arrivals())
        async with aclosing(items):
            async for item in items:
                if (body := item.content()) is not None:
                    tensors = body.outputs
                    size = sum(len(tensor.data) for tensor in tensors if tensor.datatype == BYTES)
                    yield await json_documents.perform(size, to_arrays, tensors)


class UnsupportedCoding(Unsupported):
    """Raised for a body in an unknown coding; `headers` names the known ones."""

    headers = (("Accept-Encoding", "gzip, deflate"),)


async def inflate(
    data: Body, coding: str, limit: int, client: object, *, hold: Callable[[int], None]
) -> Body:
    """Inflate a body of a client; `hold` gets the bytes of each step, and raises without room.

    Raises UnsupportedCoding for an unknown coding, InvalidArgument for data that are not exactly
    one stream of the coding, and TooLarge for more than `limit` bytes.
    """
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return data
    if coding not in codecs.CODINGS:
        raise UnsupportedCoding("Unsupported compression type")
    aside = partial(json_documents.aside, len(data))
    whole = await codecs.inflate(data, coding, limit, client, hold=hold, aside=aside)
    if whole is None:
        raise InvalidArgument(f"failed to decompress the request body as {coding}")
    if len(whole) > limit:
        raise TooLarge(
            f"decompressed request size exceeds the maximum allowed input size of {limit} bytes. "
            "Use --http-max-input-size to increase the limit."
        )
    return whole
