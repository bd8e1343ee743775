"""Connections that ask one prepared request again and again, at little cost of their own."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

_SERVICE = "/inference.GRPCInferenceService"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_LONGEST_TEXT = 300


class RequestFailed(Exception):
    """Raised for a request without a good answer; says why."""


class Connection(Protocol):
    async def ask(self) -> list[float]:
        """Ask once; return when each response of a stream came. Raises RequestFailed."""

    def close(self) -> None:
        """Close it; the next ask() opens it anew."""


@asynccontextmanager
async def make_connections(plan: dict[str, Any]) -> AsyncIterator[list[Connection]]:
    """Yield as many connections as the plan says; they are closed at the end."""
    request, count = base64.b64decode(plan["request"]), plan["concurrency"]
    if plan["kind"] == "http":
        found: list[Any] = [_HttpConnection(plan, request) for _ in range(count)]
        await asyncio.gather(*(one.open() for one in found), return_exceptions=True)
        try:
            yield found
        finally:
            for one in found:
                one.close()
        return
    import grpc.aio

    kind = _GrpcStream if plan["kind"] == "stream" else _GrpcCall
    metadata = tuple(_metadatum(name.lower(), value) for name, value in plan["headers"].items())
    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(plan["address"], options=limits) as channel:
        streams = [kind(channel, metadata, request) for _ in range(count)]
        try:
            yield list(streams)
        finally:
            for stream in streams:
                stream.close()


def _metadatum(name: str, value: str) -> tuple[str, str | bytes]:
    return name, value.encode() if name.endswith("-bin") else value


class _HttpConnection(asyncio.Protocol):
    def __init__(self, plan: dict[str, Any], request: bytes) -> None:
        host, _, port = plan["address"].rpartition(":")
        self._place = host.strip("[]"), int(port)
        self._tls = ssl.create_default_context() if plan["has_tls"] else None
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[None] | None = None
        self._received = bytearray()
        #: Of the body; -1 while the head has not come.
        self._left = -1

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_connection(lambda: self, *self._place, ssl=self._tls)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    async def ask(self) -> list[float]:
        if self._transport is None:
            try:
                await self.open()
            except OSError as error:
                raise RequestFailed(f"no connection: {error.strerror or error}") from None
        assert self._transport is not None
        self._received.clear()
        self._left = -1
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(self._request)
        await self._answer
        return []

    def data_received(self, data: bytes) -> None:
        if self._left < 0 or not self._is_good():
            self._received += data  # the head, or an error, which is reported
        if self._left >= 0:
            self._left -= len(data)
        elif (end := self._received.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._received, 0, end + 2)
            if length is None:
                self._fail("the answer has no Content-Length, as from a proxy that changes it")
                self.close()
                return
            self._left = int(length[1]) - (len(self._received) - end - 4)
        if self._left == 0 and self._answer is not None and not self._answer.done():
            if self._is_good():
                self._answer.set_result(None)
            else:
                self._answer.set_exception(RequestFailed(_error_text(bytes(self._received))))

    def _is_good(self) -> bool:
        return self._received.startswith(b"HTTP/1.1 200")

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._fail("the server has closed the connection")

    def _fail(self, reason: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(RequestFailed(reason))


def _error_text(received: bytes) -> str:
    head, _, body = received.partition(b"\r\n\r\n")
    try:
        return str(json.loads(body)["error"])[:_LONGEST_TEXT]
    except (ValueError, KeyError, TypeError):
        return head.partition(b"\r\n")[0].decode("latin-1")


class _GrpcCall:
    def __init__(self, channel: Any, metadata: Any, request: bytes) -> None:
        self._call = channel.unary_unary(f"{_SERVICE}/ModelInfer")
        self._metadata = metadata
        self._request = request

    async def ask(self) -> list[float]:
        import grpc

        try:
            await self._call(self._request, metadata=self._metadata)
        except grpc.RpcError as error:
            raise RequestFailed(_grpc_text(error)) from None
        return []

    def close(self) -> None:
        """Do nothing: a call ends with its task."""


class _GrpcStream:
    def __init__(self, channel: Any, metadata: Any, request: bytes) -> None:
        from zmqtriton_protos import message

        self._method = channel.stream_stream(f"{_SERVICE}/ModelStreamInfer")
        self._metadata = metadata
        self._request = request
        self._response = message("inference.ModelStreamInferResponse")
        self._stream: Any = None

    async def ask(self) -> list[float]:
        import grpc

        if self._stream is None:
            self._stream = self._method(metadata=self._metadata)
        arrivals = []
        try:
            await self._stream.write(self._request)
            while True:
                data = await self._stream.read()
                now_s = time.perf_counter()
                if data is grpc.aio.EOF:
                    raise RequestFailed("the server has closed the stream")
                answer = self._response.FromString(data)
                if answer.error_message:
                    self.close()  # what may follow belongs to no later request
                    raise RequestFailed(answer.error_message[:_LONGEST_TEXT])
                found = answer.infer_response
                is_final = found.parameters["triton_final_response"].bool_param
                if found.outputs or not is_final:
                    arrivals.append(now_s)
                if is_final:
                    return arrivals
        except (grpc.RpcError, asyncio.InvalidStateError) as error:
            self.close()
            raise RequestFailed(_grpc_text(error)) from None

    def close(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None


def _grpc_text(error: Any) -> str:
    details = error.details() if hasattr(error, "details") else str(error)
    return str(details)[:_LONGEST_TEXT]
