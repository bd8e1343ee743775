"""The targets of Serve's proxies: HTTP and gRPC requests go to a replica by their model.

`Entrance` does everything except the choice of the replica, so a single group is its own ingress. A
replica's `Relay` passes requests on to its server unchanged. Requests and responses of gRPC stay
bytes from end to end: neither proxies nor replicas decode tensors.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import aiohttp
import grpc
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from zmqtriton.sdk.wire import NotFound, Unavailable, ZmqTritonError
from zmqtriton_extras.fleet.serve.groups import choose_group
from zmqtriton_extras.fleet.servers.nodes import Node

#: Status codes by number.
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
#: Headers that belong to one connection.
_OF_CONNECTIONS = frozenset(
    ("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host")
)
_SERVICE = "/inference.GRPCInferenceService/"
_UNLIMITED = -1
#: Prefixes of metadata that HTTP/2 and Serve add, not the caller.
_NOT_FORWARDED = ("grpc-", ":", "user-agent", "application", "request_id", "multiplexed_model_id")

Pairs = Sequence[tuple[str, str]]


class GrpcAnswer(NamedTuple):
    """The end of a call, or a message of a stream. Errors are values: not all can be pickled."""

    body: bytes = b""
    #: A number of grpc.StatusCode; 0 is OK.
    code: int = 0
    details: str = ""


class Head(NamedTuple):
    """Status and headers of an answer."""

    status: int
    headers: Pairs


def forwarded(headers: Pairs) -> list[tuple[str, str]]:
    """Return the headers for the next hop, without headers of a single connection."""
    return [(name, value) for name, value in headers if name.lower() not in _OF_CONNECTIONS]


def forwarded_metadata(metadata: Mapping[str, str] | Pairs) -> list[tuple[str, str]]:
    pairs = metadata.items() if isinstance(metadata, Mapping) else metadata
    return [(key, value) for key, value in pairs if not key.lower().startswith(_NOT_FORWARDED)]


class Relay:
    """The connections to one server, opened and used in one event loop."""

    #: The server.
    node: Node
    _session: aiohttp.ClientSession | None = None
    _channel: grpc.aio.Channel | None = None

    async def relay_http(
        self, method: str, target: str, headers: Pairs, body: bytes
    ) -> AsyncIterator[Head | bytes]:
        """Yield the head of the answer, then pieces of its body as they come.

        Raises Unavailable if the server cannot be reached.
        """
        if self._session is None:
            # what a server answers is for the client to read, redirections and encodings included
            self._session = aiohttp.ClientSession(
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None),
                connector=aiohttp.TCPConnector(limit=0),
                skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
            )
        request = self._session.request(
            method,
            f"{self.node.url}{target}",
            headers=forwarded(headers),
            data=body,
            allow_redirects=False,
        )
        try:
            async with request as answer:
                pairs = [(name, value) for name, value in answer.headers.items()]
                yield Head(answer.status, forwarded(pairs))
                async for piece in answer.content.iter_any():
                    yield piece
        except aiohttp.ClientConnectorError as error:
            raise Unavailable(
                f"the server cannot be reached, repeat the request: {error}"
            ) from None

    async def relay_unary(self, method: str, request: bytes, metadata: Pairs) -> GrpcAnswer:
        """Call a method with the bytes of a request."""
        try:
            return GrpcAnswer(
                await self._grpc.unary_unary(_SERVICE + method)(request, metadata=metadata)
            )
        except grpc.aio.AioRpcError as error:
            return _failure(error)

    async def relay_stream(
        self, method: str, request: bytes, metadata: Pairs
    ) -> AsyncIterator[GrpcAnswer]:
        """Send a request on a stream of its own, and yield its responses."""
        call = self._grpc.stream_stream(_SERVICE + method)(iter((request,)), metadata=metadata)
        try:
            async for response in call:
                yield GrpcAnswer(response)
        except grpc.aio.AioRpcError as error:
            yield _failure(error)

    @property
    def _grpc(self) -> Any:
        if self._channel is None:
            if not self.node.grpc:
                raise Unavailable("the server has no gRPC: use HTTP, or remove --allow-grpc=false")
            limits = [(f"grpc.max_{way}_message_length", _UNLIMITED) for way in ("send", "receive")]
            self._channel = grpc.aio.insecure_channel(self.node.grpc, limits)
        return self._channel


def _failure(error: grpc.aio.AioRpcError) -> GrpcAnswer:
    return GrpcAnswer(b"", error.code().value[0], error.details() or "")


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
    """Return the name of the model, the first field of messages that have one; "" otherwise."""
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
    """Receives requests from Serve's proxies; subclasses pass them on."""

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
    """Answer the messages of a stream in their order, as a server does with a sequence."""
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
    """Directs requests to the groups; its `user_config` has the models of each."""

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
            raise NotFound(
                f"no server of the fleet has the model '{model}'; add it to a group of the "
                "fleet's file"
            )
        return self._handles[group].options(stream=stream)
