"""Requests that come through Serve's proxies, passed on to a server as they are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

import aiohttp
import grpc

from zmqtriton_addons.fleet.servers.nodes import Node
from zmqtriton_floor.errors import Unavailable

#: Those that are of one connection.
_OF_CONNECTIONS = frozenset(
    ("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host")
)
_SERVICE = "/inference.GRPCInferenceService/"
_UNLIMITED = -1
#: Of HTTP/2 and of Serve, not of the caller.
_NOT_FORWARDED = ("grpc-", ":", "user-agent", "application", "request_id", "multiplexed_model_id")

Pairs = Sequence[tuple[str, str]]


class GrpcAnswer(NamedTuple):
    """The end of a call, or a message of a stream; errors are values, since not all can travel."""

    body: bytes = b""
    #: A number of grpc.StatusCode; 0 is OK.
    code: int = 0
    details: str = ""


class Head(NamedTuple):
    """Status and headers of an answer."""

    status: int
    headers: Pairs


def forwarded(headers: Pairs) -> list[tuple[str, str]]:
    """Return the headers that are for the next hop, too."""
    return [(name, value) for name, value in headers if name.lower() not in _OF_CONNECTIONS]


def forwarded_metadata(metadata: Mapping[str, str] | Pairs) -> list[tuple[str, str]]:
    pairs = metadata.items() if isinstance(metadata, Mapping) else metadata
    return [(key, value) for key, value in pairs if not key.lower().startswith(_NOT_FORWARDED)]


class Relay:
    """The way to one server; what opens it is used in one event loop."""

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
            raise Unavailable(f"the server cannot be reached: {error}") from None

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
        """Send one message of a stream, and yield the responses."""
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
                raise Unavailable("the server has no gRPC")
            limits = [(f"grpc.max_{way}_message_length", _UNLIMITED) for way in ("send", "receive")]
            self._channel = grpc.aio.insecure_channel(self.node.grpc, limits)
        return self._channel


def _failure(error: grpc.aio.AioRpcError) -> GrpcAnswer:
    return GrpcAnswer(b"", error.code().value[0], error.details() or "")
