"""The gRPC process: `python -m zmqtriton_frontends.grpc_api --lifeline FD [--socket FD …]`.

Started by the supervisor, which tells it over the lifeline who it is, when to listen and when to
stop. Ends with status 0 once it was told to stop; the end of the lifeline ends it at once.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import math
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import uvloop

from zmqtriton_floor import logs, prctl
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_frontends.gateway import startup
from zmqtriton_frontends.gateway.gateway import NEW_SEQUENCES_S, Gateway
from zmqtriton_frontends.process import request_log
from zmqtriton_frontends.process.allocator import keep_freed_memory

if TYPE_CHECKING:
    from zmqtriton_frontends.grpc_api.transport.grpcio_server import Server as GrpcioServer
    from zmqtriton_frontends.grpc_api.transport.server import NativeServer

_log = logging.getLogger(__name__)

_SERVICE = "GRPCInferenceService"


async def serve(gateway: Gateway, bound: Sequence[socket.socket]) -> None:
    """Serve from Bootstrap to stop. Raises RuntimeError if the port cannot be listened on.

    `bound` are the sockets to listen on; grpcio has none, and binds the port itself.
    """
    stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def stop(within_ms: int) -> None:
        if not stopped.done():
            stopped.set_result(within_ms)

    gateway.on_stop = stop
    if not await startup.may_open(gateway, stopped):
        return
    settings = gateway.settings
    has_successor = "grpc" in settings.server.passed_sockets or settings.grpc.reuse_port
    gateway.begins_sequences_s = math.inf if has_successor else NEW_SEQUENCES_S
    request_log.configure()
    host = settings.grpc.address
    port = settings.grpc.port
    server: NativeServer | GrpcioServer
    # only the one that is wanted: grpc takes 20 MB and has threads of its own
    if settings.grpc.transport == "native":
        from zmqtriton_frontends.grpc_api.transport.server import NativeServer

        server = native = NativeServer(gateway)
        await native.start(bound)
        _leave_when_told(gateway, native)
    else:
        from zmqtriton_frontends.grpc_api.transport.grpcio_server import Server as GrpcioServer

        server = grpcio = GrpcioServer(gateway)
        port = await grpcio.start(startup.address(host, port))
    # what exists now lives as long as the process; the collector need not look at it again
    gc.collect()
    gc.freeze()
    gateway.listening(_SERVICE, startup.address(host, port))
    await server.stop(await stopped / 1000)


def _leave_when_told(gateway: Gateway, server: NativeServer) -> None:
    """Have clients go elsewhere while the server drains, and when it stops."""

    def tell() -> None:
        if gateway.is_stopping or gateway.catalogue.is_draining:
            server.leave()

    gateway.on_retire = gateway.catalogue.on_draining = tell
    tell()


async def run(lifeline: int, descriptors: Sequence[int | None]) -> None:
    gateway = Gateway(Lifeline.inherited(lifeline))
    bound = [socket.socket(fileno=number) for number in descriptors if number is not None]
    try:
        await serve(gateway, bound)
    finally:
        gateway.close()
        gateway.traces.end()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="zmqtriton_frontends.grpc_api")
    parser.add_argument("--lifeline", type=int, required=True, metavar="FD")
    parser.add_argument("--socket", type=int, metavar="FD")
    parser.add_argument("--grpc-other-family-socket", type=int, metavar="FD")
    options = parser.parse_args(arguments)
    prctl.set_name("zmqtriton-grpc")
    prctl.hide_memory()
    keep_freed_memory()
    # the library's own messages are no verbose lines of ours
    logging.getLogger("grpc").setLevel(logging.INFO)
    logs.configure()
    try:
        descriptors = options.socket, options.grpc_other_family_socket
        uvloop.run(run(options.lifeline, descriptors))
    except RuntimeError as error:
        _log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    prctl.run_program(lambda: main(sys.argv[1:]))
