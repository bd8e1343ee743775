"""The process of the door: `python -m zmqtriton_addons.door.process --lifeline FD --socket FD`.

Started by the supervisor, which has bound the socket, and tells it over the lifeline who it is,
when to listen and when to stop. Ends with status 0 once it was told to stop; the end of the
lifeline ends it at once.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
from collections.abc import Sequence

import uvloop

from zmqtriton_addons.door.process.server import DoorServer
from zmqtriton_floor import logs, prctl
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_frontends.gateway import NEW_SEQUENCES_S, Gateway, may_open
from zmqtriton_frontends.process import keep_freed_memory, request_log

_log = logging.getLogger(__name__)

_SERVICE = "ZMQDoor"


async def serve(gateway: Gateway, listener: int) -> None:
    """Serve from Bootstrap to stop."""
    stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def stop(within_ms: int) -> None:
        if not stopped.done():
            stopped.set_result(within_ms)

    gateway.on_stop = stop
    if not await may_open(gateway, stopped):
        return
    request_log.configure()
    gateway.begins_sequences_s = NEW_SEQUENCES_S
    server = DoorServer(gateway)
    path = server.start(listener)
    # what exists now lives as long as the process; the collector need not look at it again
    gc.collect()
    gc.freeze()
    gateway.listening(_SERVICE, path)
    await server.stop(await stopped / 1000)


async def run(descriptor: int, listener: int) -> None:
    gateway = Gateway(Lifeline.inherited(descriptor))
    try:
        await serve(gateway, listener)
    finally:
        gateway.close()
        gateway.traces.end()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="zmqtriton_addons.door.process")
    parser.add_argument("--lifeline", type=int, required=True, metavar="FD")
    parser.add_argument("--socket", type=int, required=True, metavar="FD")
    options = parser.parse_args(arguments)
    prctl.set_name("zmqtriton-door")
    prctl.hide_memory()
    keep_freed_memory()
    logs.configure()
    try:
        uvloop.run(run(options.lifeline, options.socket))
    except (RuntimeError, OSError) as error:
        _log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    prctl.run_program(lambda: main(sys.argv[1:]))
