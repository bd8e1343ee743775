"""The settings that a process's inferences over HTTP share, and the reading of their bodies.

How one goes on from there is http_inference.py's.
"""

from __future__ import annotations

from typing import Any

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
)
from zmqtriton_frontends.http_api.inference.infer_request import InferRequest, OutputForm
from zmqtriton_frontends.http_api.inference.stage_time_headers import StageTimeHeaders
from zmqtriton_frontends.inference import admission
from zmqtriton_frontends.inference.catalogue import ModelVersion
from zmqtriton_frontends.inference.header_forwarding import Forwarding
from zmqtriton_frontends.tensors.arena_body import ArenaBuffer

#: A whole request; a view if it lies in shared memory.
Body = bytes | bytearray | memoryview

JSON_LENGTH = binary.JSON_LENGTH_HEADER.lower().encode()


class Inference:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.max_input_size: int = gateway.settings.http.max_input_size
        forwarding = Forwarding(
            gateway.settings.http.header_forward_pattern,
            hides_tokens=bool(gateway.settings.access.tokens),
        )
        #: None if models get no headers.
        self.forwarding = forwarding or None
        self.stage_time_headers = StageTimeHeaders(gateway)

    def find(self, target: tuple[str, str]) -> ModelVersion:
        """Find the model of an inference that is answered once.

        Raises what Catalogue.find raises, and Unsupported for one that may answer more than once.
        """
        model = self.gateway.catalogue.find(*target)
        if model.signature.is_decoupled:
            raise Unsupported(
                "HTTP end point doesn't support models with decoupled transaction policy. "
                "Use generate_stream or infer_stream, or ModelStreamInfer over gRPC"
            )
        return model

    def parse(self, model: ModelVersion, body: Body, json_length: int | None) -> InferRequest:
        """Parse a body that begins with so many bytes of JSON, or is all JSON.

        May run in a thread. Raises InvalidArgument.
        """
        if json_length is None:
            return infer_request.read(json_documents.parse(bytes(body)), None)
        if json_length == 0:
            if len(body) > self.max_input_size:
                raise too_large("raw input", len(body), self.max_input_size)
            raw = binary.raw_request(model, body)
            return raw, admission.Options(), OutputForm({}, default=True)
        if json_length > self.max_input_size:
            raise too_large("JSON", json_length, self.max_input_size)
        tail = binary.Tail(memoryview(body)[json_length:], model.name)
        return infer_request.read(json_documents.parse(bytes(body[:json_length])), tail)

    # ------------------------------------------------------------- requests that Falcon has

    async def receive(self, req: Request) -> ArenaBuffer:
        """Receive a body, inflated, with its tensors where the model can read them."""
        read = req.begin_body()
        length = req.header(JSON_LENGTH)
        limit = self.max_input_size if length is None else MAX_BODY_BYTES
        pieces: list[Any]
        pieces, size = await req.read_pieces(limit, read)
        coding = req.header(b"content-encoding")
        if coding is not None:
            body = b"".join(pieces)
            whole = await compression.inflate(
                body, coding, self.max_input_size, req.client, hold=req.hold
            )
            pieces, size = [whole], len(whole)
        tensors_at = size if length is None else binary.tensors_at(length, size)
        if size - tensors_at <= INLINE_BYTES:
            return ArenaBuffer(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        return await self.gateway.payload.gather(pieces, size, tensors_at, req.hold)

    async def read(self, req: Request, model: ModelVersion, body: Body) -> InferRequest:
        """Read the request of a body and of forwarded headers. Raises InvalidArgument."""
        header = req.header(JSON_LENGTH)
        length = None if header is None else binary.json_length(header, len(body))
        size = len(body) if length is None else length
        if size < json_documents.LARGE_BYTES:
            parsed = self.parse(model, body, length)
        else:
            parsed = await json_documents.aside(size, self.parse, model, body, length)
        if self.forwarding is not None:
            self.forwarding.add(parsed[0].parameters, req.spelled_headers())
        request, options, form = parsed
        return request, options._replace(deadline_ns=req.deadline_ns), form
