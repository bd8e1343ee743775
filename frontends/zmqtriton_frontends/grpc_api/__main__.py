"""The gRPC process: `python -m zmqtriton_frontends.grpc_api --lifeline FD [--socket FD]`.

Started by the supervisor, which tells it over the lifeline who it is, when to listen and when to
stop. Ends with status 0 once it was told to stop; the end of the lifeline ends it at once.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
from collections.abc import Sequence
from typing import Any

import uvloop

from zmqtriton_floor import logs, prctl
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_frontends.gateway import startup
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.process.allocator import keep_freed_memory

_log = logging.getLogger(__name__)

_SERVICE = "GRPCInferenceService"


async def serve(gateway: Gateway, passed: int | None) -> None:
    """Serve from Bootstrap to stop. Raises RuntimeError if the port cannot be listened on.

    `passed` is the socket that systemd has passed, if it has.
    """
    stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def stop(within_ms: int) -> None:
        if not stopped.done():
            stopped.set_result(within_ms)

    gateway.on_stop = stop
    if not await startup.may_open(gateway, stopped):
        return
    settings = gateway.settings
    logs.configure(logs.LogOptions.of(settings))
    host = settings["grpc_address"]
    server = _server_of(gateway)
    address = startup.address(host, settings["grpc_port"])
    port = await (server.start(address) if passed is None else server.start(address, passed))
    # others serve the port, too; grpc.aio closes its own only with everything else
    is_shared = settings["reuse_grpc_port"] or passed is not None
    if is_shared and settings["grpc_transport"] == "native":
        gateway.on_retire = server.leave_port
        if gateway.is_stopping:
            server.leave_port()
    # what exists now lives as long as the process; the collector need not look at it again
    gc.collect()
    gc.freeze()
    gateway.listening(_SERVICE, startup.address(host, port))
    await server.stop(await stopped / 1000)


def _server_of(gateway: Gateway) -> Any:
    # only the one that is wanted: grpc takes 20 MB and has threads of its own
    if gateway.settings["grpc_transport"] == "native":
        from zmqtriton_frontends.grpc_api.transport.server import NativeServer

        return NativeServer(gateway)
    from zmqtriton_frontends.grpc_api.transport.grpcio_server import Server

    return Server(gateway)


async def run(lifeline: int, passed: int | None) -> None:
    gateway = Gateway(Lifeline.inherited(lifeline))
    try:
        await serve(gateway, passed)
    finally:
        gateway.close()
        gateway.traces.end()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="zmqtriton_frontends.grpc_api")
    parser.add_argument("--lifeline", type=int, required=True, metavar="FD")
    parser.add_argument("--socket", type=int, metavar="FD")
    options = parser.parse_args(arguments)
    prctl.set_name("zmqtriton-grpc")
    prctl.hide_memory()
    keep_freed_memory()
    # libraries' own messages are no verbose lines of ours, and hpack's show keys and tokens
    for library in ("grpc", "hpack"):
        logging.getLogger(library).setLevel(logging.INFO)
    logs.configure()
    try:
        uvloop.run(run(options.lifeline, options.socket))
    except RuntimeError as error:
        _log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
