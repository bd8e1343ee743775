"""Serves the table of RPCs with grpc.aio.

Does not read the messages. Every fault becomes a status here, and no client can end the process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

import grpc
import grpc.aio

from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.settings.frontends import Grpc, Tls
from zmqtriton_floor.token_file import Grant
from zmqtriton_frontends.access.bearer_tokens import HEADER
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.grpc_api.call import Begin, CallFacts, Metadata, answered, client_error
from zmqtriton_frontends.grpc_api.handlers import Exchange, Rpc
from zmqtriton_frontends.grpc_api.inference.response import MAX_MESSAGE_BYTES
from zmqtriton_frontends.grpc_api.transport.lifecycle import (
    FAR_S,
    INFERENCE,
    MAX_STREAMS,
    SERVICE,
    RpcLifecycle,
    compression_of,
    details_of,
    pushback,
)
from zmqtriton_frontends.inference.open_sequences import OpenSequences
from zmqtriton_frontends.process.handshakes import Certificates
from zmqtriton_frontends.process.ledger import ClientAccount, Ledger, Share, release
from zmqtriton_frontends.process.peer_user import Endpoint
from zmqtriton_frontends.serving.listener import address
from zmqtriton_frontends.serving.process import Service


def credentials_of(tls: Tls) -> Any:
    """Return grpc's credentials. Raises OSError for unusable files.

    grpc calls back at each handshake, in a thread of its own.
    """
    files = Certificates(tls, "grpc")

    def read() -> Any:
        files.make_context()  # grpc takes files, too, that do not fit
        pair = (Path(files.key).read_bytes(), Path(files.cert).read_bytes())
        root = Path(files.root).read_bytes() if files.root else None
        return grpc.ssl_server_certificate_configuration([pair], root)

    return grpc.dynamic_ssl_server_credentials(
        read(), lambda: files.renewed(read), require_client_authentication=bool(files.root)
    )


_STATUS: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}

#: Maximum number of calls that wait to be taken up. With more, grpc cancels some at random, and
#: with twice as many all; its default of a thousand would cancel calls of a burst.
_SOME_PENDING = 4 * MAX_STREAMS

_COMPRESSION = {"gzip": grpc.Compression.Gzip, "deflate": grpc.Compression.Deflate}


def channel_arguments(settings: Grpc) -> list[tuple[str, int]]:
    """Return grpc's arguments for the server's settings."""
    arguments = [
        ("grpc.max_receive_message_length", settings.max_input_size),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        # several processes serve one port; the supervisor makes sure that nobody else does
        ("grpc.so_reuseport", 1),
        ("grpc.max_concurrent_streams", MAX_STREAMS),
        ("grpc.server.max_pending_requests", _SOME_PENDING),
        ("grpc.server.max_pending_requests_hard_limit", 2 * _SOME_PENDING),
        ("grpc.keepalive_time_ms", settings.keepalive_time),
        ("grpc.keepalive_timeout_ms", settings.keepalive_timeout),
        (
            "grpc.keepalive_permit_without_calls",
            int(settings.keepalive_permit_without_calls),
        ),
        ("grpc.http2.max_pings_without_data", settings.http2_max_pings_without_data),
        (
            "grpc.http2.min_ping_interval_without_data_ms",
            settings.http2_min_recv_ping_interval_without_data,
        ),
        ("grpc.http2.max_ping_strikes", settings.http2_max_ping_strikes),
    ]
    ages = (
        ("grpc.max_connection_age_ms", settings.max_connection_age),
        ("grpc.max_connection_age_grace_ms", settings.max_connection_age_grace),
    )
    # 0 is "no limit" and says nothing to grpc
    return arguments + [(name, age) for name, age in ages if age]


def _is_news(record: logging.LogRecord) -> bool:
    """False for records that clients can cause at any time.

    A response that could not be sent to a client that had just left; and metadata that are no
    UTF-8, which grpc reads as Latin-1, with a traceback.
    """
    return not record.getMessage().startswith(
        ("ExecuteBatchError raised in core by servicer method", "Invalid encoding on ")
    )


logging.getLogger("grpc._cython.cygrpc").addFilter(_is_news)


class GrpcCall:
    """Call over grpc.aio's context."""

    __slots__ = ("_answers", "_client", "_context", "_ledger", "_port", "_requests", "grant")

    def __init__(self, context: Any, ledger: Ledger, port: int = 0) -> None:
        self._context = context
        self._ledger = ledger
        #: Port of the server, to find the user of a local connection; 0 if not needed.
        self._port = port
        #: Account of the client in the ledger; made when a message that needs room is encoded.
        self._client: ClientAccount | None = None
        self._answers: Share | None = None
        self._requests: Share | None = None
        self.grant: Grant | None = None

    @property
    def deadline_ns(self) -> int:
        left_s = self._context.time_remaining()
        if left_s is None or left_s > FAR_S:
            return 0
        return time.monotonic_ns() + int(left_s * 1e9)

    @property
    def metadata(self) -> Metadata:
        pairs: Metadata = self._context.invocation_metadata()
        return pairs

    @property
    def facts(self) -> CallFacts:
        # no sequences: grpc tells all connections at once to end
        return CallFacts.of(self._context.invocation_metadata, OpenSequences())

    def add_trailers(self, pairs: Sequence[tuple[str, str | bytes]]) -> None:
        self._context.set_trailing_metadata(tuple(pairs))

    @property
    def answers(self) -> Share:
        if self._answers is None:
            self._answers = Share(self._ledger.answers, self._enter())
        return self._answers

    @property
    def requests(self) -> Share:
        if self._requests is None:
            self._requests = Share(self._ledger.requests, self._enter())
        return self._requests

    async def turn(self, begun: float) -> None:
        await asyncio.sleep(0)

    def work(self, step: Callable[[], bool]) -> None:
        if step():
            asyncio.get_running_loop().call_soon(self.work, step)

    def _enter(self) -> ClientAccount:
        if self._client is None:
            self._client = self._ledger.account(self.ends[0].host)
            self._context.add_done_callback(self._forget)
        return self._client

    def _forget(self, _: object) -> None:
        release(self._answers, self._requests)
        if self._client is not None:
            self._client.leave()

    @property
    def authorization(self) -> Sequence[str]:
        pairs = ((name, value) for name, value in self.metadata if name == HEADER)
        return [v if isinstance(v, str) else v.decode("latin-1") for _, v in pairs]

    @property
    def ends(self) -> tuple[Endpoint, Endpoint]:
        # such as ipv4:127.0.0.1:40000 or ipv6:%5B::1%5D:40000
        kind, _, place = unquote(self._context.peer()).partition(":")
        host, _, port = place.rpartition(":")
        # grpc does not say at which of its addresses the client is
        number = int(port) if kind.startswith("ip") and port.isdecimal() else 0
        return Endpoint(host.strip("[]"), number), Endpoint("", self._port)


class GrpcioServer(Service):
    """One listening port. Its RPCs end with a status even if a handler fails."""

    def __init__(self, gateway: Gateway) -> None:
        """Set up; grpc itself binds the port."""
        self._settings = settings = gateway.settings
        self.shares_port = "grpc" in settings.server.passed_sockets or settings.grpc.reuse_port
        self._answering = RpcLifecycle(gateway)
        #: Compression of responses to inferences; as in Triton, other calls have none.
        self._compression: grpc.Compression | None = _COMPRESSION.get(compression_of(settings.grpc))
        self._server: Any = None
        self._ending: asyncio.Future[None]
        self._port = 0

    async def open(self) -> list[tuple[str, str]]:
        settings, host = self._settings.grpc, self._settings.grpc.address
        self._server = grpc.aio.server(options=channel_arguments(settings))
        self._server.add_generic_rpc_handlers(self._services())
        place, tls = address(host, settings.port), self._settings.access.tls
        if tls is not None:
            port = self._server.add_secure_port(place, credentials_of(tls))
        else:
            port = self._server.add_insecure_port(place)
        await self._server.start()
        self._port = port
        return [(SERVICE, address(host, port))]

    async def end(self, within_s: float) -> None:
        """Stop at once; open calls have the given time.

        grpc cancels requests that clients send before they have read of the end, and the rest when
        the time is up. It cannot send GOAWAY or close the listener without stopping: from then on
        it accepts no call.
        """
        self._answering.drain()
        self._ending = asyncio.ensure_future(self._server.stop(within_s))

    def end_idle(self) -> bool:
        return self._ending.done()

    async def close(self) -> None:
        await self._ending

    # ------------------------------------------------------------------- RPCs

    def _services(self) -> list[Any]:
        methods: dict[str, dict[str, Any]] = {}
        for rpc in self._answering.table:
            methods.setdefault(rpc.service, {})[rpc.method] = self._method(rpc)
        return [grpc.method_handlers_generic_handler(name, rows) for name, rows in methods.items()]

    def _method(self, rpc: Rpc) -> Any:
        # no (de)serializer: grpc hands over bytes
        if rpc.unary is not None:
            return grpc.unary_unary_rpc_method_handler(self._unary(rpc, rpc.unary))
        assert rpc.exchange is not None
        return grpc.stream_stream_rpc_method_handler(self._exchange(rpc, rpc.exchange))

    def _unary(self, rpc: Rpc, begin: Begin) -> Callable[[bytes, Any], Awaitable[bytes]]:
        answering = self._answering
        compression = self._compression if rpc.category == INFERENCE else None

        async def serve(data: bytes, context: Any) -> bytes:
            try:
                answer = await answered(
                    begin, data, GrpcCall(context, answering.ledger, self._port)
                )
                if compression is not None:
                    context.set_compression(compression)
                    # what grpc.aio itself sends with an only answer names no algorithm
                    await context.send_initial_metadata(())
                return answer
            except Exception as failure:  # noqa: BLE001 - an edge: the client gets an answer
                error = client_error(rpc.method, failure)
            await _abort(context, error)

        return serve

    def _exchange(
        self, rpc: Rpc, handle: Exchange
    ) -> Callable[[AsyncIterator[bytes], Any], Awaitable[None]]:
        # not a generator: grpc would leave closing it to the garbage collector
        async def serve(requests: AsyncIterator[bytes], context: Any) -> None:
            if self._compression is not None and rpc.category == INFERENCE:
                context.set_compression(self._compression)
            try:
                call = GrpcCall(context, self._answering.ledger, self._port)
                async with aclosing(handle(requests, call)) as responses:
                    async for response in responses:
                        await context.write(bytes(response))
                return
            except grpc.aio.InternalError:
                # grpc's error of sending to a client that has left; nobody is there to be told
                return
            except Exception as failure:  # noqa: BLE001 - an edge, as above
                error = client_error(rpc.method, failure)
            await _abort(context, error)

        return serve


async def _abort(context: Any, error: ZmqTritonError) -> NoReturn:
    code, text = error.grpc_status, details_of(error.text)
    await context.abort(
        _STATUS[code], text, trailing_metadata=pushback(code, text, error.retry_after_ms)
    )
    raise AssertionError("abort always raises")
