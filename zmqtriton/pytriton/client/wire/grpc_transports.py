"""Channels that carry gRPC calls: for threads, and for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import grpc
import grpc.aio

from zmqtriton.pytriton.client.exceptions import PyTritonClientValueError
from zmqtriton.pytriton.client.wire.calls import Headers, ServerError
from zmqtriton.pytriton.client.wire.grpc_calls import SERVICE, GrpcRequest
from zmqtriton.pytriton.client.wire.stream_timeouts import StreamTimeout
from zmqtriton.pytriton.client.wire.url import TritonUrl

_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # A server that comes late is found soon after; by default it may take two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


def _translate(error: grpc.RpcError) -> Exception:
    text = error.details() or str(error.code())
    is_late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    return TimeoutError(text) if is_late else ServerError(text)


def _metadata(headers: Headers) -> list[tuple[str, str]]:
    for name, value in headers.items():
        if not name.isascii() or not value.isascii() or not f"{name}{value}".isprintable():
            raise PyTritonClientValueError(f"Header {name!r} has signs that gRPC cannot carry")
    return [(name.lower(), value) for name, value in headers.items()]


def _open(channel: Any, request: GrpcRequest) -> Any:
    """Return a function that starts the RPC of a request."""
    method = request.method
    make = channel.stream_stream if method.client_streaming else channel.unary_unary
    return make(
        f"/{SERVICE}/{method.name}",
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
    )


class GrpcTransport:
    """A channel to a server, for any number of threads."""

    def __init__(self, url: TritonUrl) -> None:
        self._channel = grpc.insecure_channel(url.without_scheme, options=_OPTIONS)

    def exchange(self, request: GrpcRequest, headers: Headers, timeout_s: float) -> Any:
        """Send a request and return the answer. Raises ServerError and TimeoutError."""
        start = _open(self._channel, request)
        try:
            return start(request.message, timeout=timeout_s, metadata=_metadata(headers))
        except grpc.RpcError as error:
            raise _translate(error) from error

    def stream(
        self, request: GrpcRequest, headers: Headers, timeout: StreamTimeout
    ) -> Iterator[Any]:
        """Send a request now and return its answers."""
        rpc = _open(self._channel, request)(iter([request.message]), metadata=_metadata(headers))
        arrivals: SimpleQueue[Any] = SimpleQueue()
        # grpc has no read with a timeout.
        Thread(target=_forward, args=(rpc, arrivals), daemon=True).start()
        return _answers(rpc, arrivals, timeout.begin())

    def close(self) -> None:
        self._channel.close()


def _forward(rpc: Any, arrivals: SimpleQueue[Any]) -> None:
    try:
        for answer in rpc:
            arrivals.put(answer)
        arrivals.put(None)
    except grpc.RpcError as error:
        arrivals.put(_translate(error))


def _answers(
    rpc: Any, arrivals: SimpleQueue[Any], left_s: Callable[[], float | None]
) -> Iterator[Any]:
    try:
        while (answer := arrivals.get(timeout=left_s())) is not None:
            if isinstance(answer, Exception):
                raise answer
            yield answer
    except Empty:
        raise TimeoutError("no response") from None
    finally:
        rpc.cancel()


class AsyncGrpcTransport:
    """A channel to a server, for the tasks of one event loop."""

    def __init__(self, url: TritonUrl) -> None:
        self._url = url
        #: Made by the first call: only then is there a loop for sure.
        self._channel: grpc.aio.Channel | None = None

    def _opened(self) -> grpc.aio.Channel:
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self._url.without_scheme, options=_OPTIONS)
        return self._channel

    async def exchange(self, request: GrpcRequest, headers: Headers, timeout_s: float) -> Any:
        """Send a request and return the answer. Raises ServerError and TimeoutError."""
        start = _open(self._opened(), request)
        try:
            return await start(request.message, timeout=timeout_s, metadata=_metadata(headers))
        except grpc.RpcError as error:
            raise _translate(error) from error

    async def stream(
        self, request: GrpcRequest, headers: Headers, timeout: StreamTimeout
    ) -> AsyncIterator[Any]:
        """Send a request and return its answers."""
        left_s = timeout.begin()
        start = _open(self._opened(), request)
        rpc = start(iter([request.message]), metadata=_metadata(headers))
        try:
            while True:
                answer = await asyncio.wait_for(rpc.read(), left_s())
                if answer is grpc.aio.EOF:
                    return
                yield answer
        except asyncio.TimeoutError as error:
            raise TimeoutError(str(error) or "no response") from None
        except grpc.RpcError as error:
            raise _translate(error) from error
        finally:
            rpc.cancel()

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
