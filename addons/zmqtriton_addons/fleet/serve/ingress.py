"""The targets of Serve's proxies: requests of HTTP and gRPC go to a replica by their model.

`Entrance` is all of it but the choice of the replica, so a group that is alone is its own ingress.
Requests and responses of gRPC stay bytes from end to end: neither proxies nor replicas decode
tensors.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import grpc
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from zmqtriton_addons.fleet.serve.groups import choose_group
from zmqtriton_addons.fleet.serve.relaying import GrpcAnswer, Head, Pairs, forwarded_metadata
from zmqtriton_floor.errors import NotFound, ZmqTritonError

#: By number.
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_MODEL = re.compile(r"/v2/(?:repository/)?models/([^/?]+)")
SERVICE = "inference.GRPCInferenceService"
UNARY = (
    "ServerLive",
    "ServerReady",
    "ServerMetadata",
    "ModelReady",
    "ModelMetadata",
    "ModelInfer",
    "ModelConfig",
    "ModelStatistics",
    "RepositoryIndex",
)
#: Serve passes on streams of requests from Ray 2.55 on.
STREAM = "ModelStreamInfer"
_FIRST_FIELD = 0x0A


class Message(bytes):
    """Bytes of a message, with the one method of messages that Serve calls."""

    def SerializeToString(self) -> bytes:
        return bytes(self)


def add_servicer(servicer: Any, server: Any) -> None:
    """Add the service to a server: one of the functions in Serve's `grpc_servicer_functions`."""
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(getattr(servicer, name)) for name in UNARY
    }
    handlers[STREAM] = grpc.stream_stream_rpc_method_handler(getattr(servicer, STREAM))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


def model_of(request: bytes) -> str:
    """Return the name of the model, the first field of the messages that have one; "" without."""
    if not request or request[0] != _FIRST_FIELD:
        return ""
    size = shift = 0
    for position, byte in enumerate(request[1:6], 2):
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return request[position : position + size].decode("utf-8", "replace")
    return ""


class Entrance:
    """Takes requests from Serve's proxies; subclasses pass them on."""

    def relay_http(
        self, method: str, target: str, headers: Pairs, body: bytes
    ) -> AsyncIterator[Head | bytes]:
        raise NotImplementedError

    async def relay_unary(self, method: str, request: bytes, metadata: Pairs) -> GrpcAnswer:
        raise NotImplementedError

    def relay_stream(
        self, method: str, request: bytes, metadata: Pairs
    ) -> AsyncIterator[GrpcAnswer]:
        raise NotImplementedError

    async def __call__(self, request: Request) -> Response:
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in request.headers.raw]
        body = await request.body()
        pieces = self.relay_http(request.method, target, headers, body).__aiter__()
        try:
            head = await pieces.__anext__()
        except ZmqTritonError as error:
            status = 404 if isinstance(error, NotFound) else 503
            return JSONResponse({"error": error.text}, status)
        assert isinstance(head, Head)
        response = StreamingResponse(pieces, head.status)
        response.raw_headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in head.headers
        ]
        return response


def _unary(method: str) -> Callable[..., Any]:
    async def call(self: Entrance, request: bytes, grpc_context: Any) -> Message:
        metadata = forwarded_metadata(grpc_context.invocation_metadata())
        try:
            answer = await self.relay_unary(method, request, metadata)
        except ZmqTritonError as error:
            answer = _refusal(error)
        return _finish(answer, grpc_context)

    call.__name__ = call.__qualname__ = method
    return call


def _refusal(error: ZmqTritonError) -> GrpcAnswer:
    code = grpc.StatusCode.NOT_FOUND if isinstance(error, NotFound) else grpc.StatusCode.UNAVAILABLE
    return GrpcAnswer(b"", code.value[0], error.text)


def _finish(answer: GrpcAnswer, grpc_context: Any) -> Message:
    if answer.code:
        grpc_context.set_code(_CODES[answer.code])
        grpc_context.set_details(answer.details)
    return Message(answer.body)


async def _stream(self: Entrance, request_stream: Any, grpc_context: Any) -> AsyncIterator[Message]:
    """Answer one message of the stream after the other, as a server does with a sequence."""
    metadata = forwarded_metadata(grpc_context.invocation_metadata())
    try:
        async for request in request_stream:
            async for answer in self.relay_stream(STREAM, request, metadata):
                yield _finish(answer, grpc_context)
    except ZmqTritonError as error:
        yield _finish(_refusal(error), grpc_context)


for _name in UNARY:
    setattr(Entrance, _name, _unary(_name))
setattr(Entrance, STREAM, _stream)


class Ingress(Entrance):
    """Leads requests to the groups; its `user_config` says which models each has."""

    def __init__(self, handles: Mapping[str, Any]) -> None:
        self._handles = handles
        self._groups: Mapping[str, Sequence[str] | None] = dict.fromkeys(handles)

    def reconfigure(self, user_config: Mapping[str, Any]) -> None:
        self._groups = user_config["groups"]

    async def relay_http(
        self, method: str, target: str, headers: Pairs, body: bytes
    ) -> AsyncIterator[Head | bytes]:
        match = _MODEL.match(target)
        handle = self._choose(unquote(match[1]) if match else "", stream=True)
        async for piece in handle.relay_http.remote(method, target, headers, body):
            yield piece

    async def relay_unary(self, method: str, request: bytes, metadata: Pairs) -> GrpcAnswer:
        handle = self._choose(model_of(request))
        answer: GrpcAnswer = await handle.relay_unary.remote(method, request, metadata)
        return answer

    async def relay_stream(
        self, method: str, request: bytes, metadata: Pairs
    ) -> AsyncIterator[GrpcAnswer]:
        handle = self._choose(model_of(request), stream=True)
        async for response in handle.relay_stream.remote(method, request, metadata):
            yield response

    def _choose(self, model: str, *, stream: bool = False) -> Any:
        group = choose_group(self._groups, model)
        if group is None:
            raise NotFound(f"no group has the model '{model}'")
        return self._handles[group].options(stream=stream)
