"""The real gRPC server over a fake gateway, on a loop of its own beside the test."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import uvloop

from tests.frontends.grpc_api.fake_gateway import FakeGateway
from tests.support import raw_http2 as h2
from zmqtriton.options import Options
from zmqtriton.start import listeners
from zmqtriton_frontends.grpc_api.transport.grpcio_server import GrpcioServer
from zmqtriton_frontends.grpc_api.transport.server import NativeServer
from zmqtriton_frontends.process.ledger import Ledger
from zmqtriton_frontends.serving.process import ClientReport, Service, check, end

#: What can serve the table of RPCs, and what does unless a test says else.
SERVERS = ("grpcio", "native")
chosen = "native"

T = TypeVar("T")


class GrpcServerThread:
    """A server that runs; the gateway must be touched on its loop only."""

    def __init__(self, gateway: FakeGateway) -> None:
        self.gateway = gateway
        self.address = ""
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._server: Service
        self._checking: asyncio.Task[None]

    async def _start(self) -> None:
        if chosen == "native":
            bound = self._bind()
            port = bound.getsockname()[1]
            self._server = NativeServer(self.gateway, [bound])
            await self._server.open()
        else:
            self._server = GrpcioServer(self.gateway)
            [(_, address)] = await self._server.open()
            port = int(address.rpartition(":")[2])
        self.address = f"127.0.0.1:{port}"
        self._checking = asyncio.ensure_future(check(self._server, self._report()))

    def _report(self) -> ClientReport | None:
        return ClientReport(self._server, self.gateway.call) if self._server.role else None

    def _bind(self) -> socket.socket:
        host = self.gateway.settings.grpc.address
        options = Options(grpc_address=host, grpc_port=0, allow_http=False)
        return listeners.bind_all(replace(options, allow_metrics=False))[listeners.GRPC].socket

    def start(self) -> None:
        self._thread.start()
        self.run_coroutine(self._start())

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def connect(self, first: bytes = h2.PREFACE + h2.settings_frame({})) -> h2.Connection:
        return h2.Connection(self.port, first)

    @property
    def native(self) -> NativeServer:
        assert isinstance(self._server, NativeServer)
        return self._server

    @property
    def ledger(self) -> Ledger:
        return self.native.answering.ledger

    async def _end(self, within_s: float) -> None:
        if not self._checking.cancelled():
            self._checking.cancel()
            await end_within(self._server, within_s)

    def close(self) -> None:
        self.run_coroutine(self._end(0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run_coroutine(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine on the server's loop returns."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def run_function(self, function: Callable[[], T]) -> T:
        """Return what a function on the server's loop returns."""

        async def run() -> T:
            return function()

        return self.run_coroutine(run())

    def hold(self) -> Callable[[], None]:
        """Hold inferences; the result lets them go."""
        gate = self.gateway.gate = self.run_function(asyncio.Event)
        return lambda: self.run_function(gate.set)

    def begin_stop(self, within_s: float) -> Callable[[], None]:
        """Begins to stop; the result waits for the end of that."""

        async def stop() -> None:
            await self._end(within_s)

        # At once, or what is asked next could still be answered.
        self.run_function(lambda: vars(self.gateway).update(is_stopping=True, is_ending=True))
        stopping = asyncio.run_coroutine_threadsafe(stop(), self._loop)
        return lambda: stopping.result(20)


async def end_within(server: Service, within_s: float) -> None:
    end_s = asyncio.get_running_loop().time() + within_s
    await end(server, lambda: end_s, lambda: None)


@contextmanager
def serving(gateway: FakeGateway) -> Iterator[GrpcServerThread]:
    server = GrpcServerThread(gateway)
    server.start()
    try:
        yield server
    finally:
        server.close()
