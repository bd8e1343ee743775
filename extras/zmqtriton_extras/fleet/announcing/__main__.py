"""Entry point of the process `announcer`, which the supervisor starts with `--lifeline FD`.

It outlives the supervisor for the moment that it takes to announce the server's end.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import Any

from zmqtriton.sdk.frontend import Gateway, request_log
from zmqtriton.sdk.process import Lifeline, prctl
from zmqtriton_extras.fleet.announcing.announcer import Announcer

_log = logging.getLogger(__name__)

#: The limit for the last announcement, however long requests are given.
_END_WITHIN_S = 2.0
_KILLED = "the server was killed"


class _WatchedGateway(Gateway):
    """A gateway that reports each message of the supervisor."""

    def __init__(self, lifeline: Lifeline) -> None:
        super().__init__(lifeline, lambda: self._finish(_END_WITHIN_S, _KILLED))
        self.has_news = asyncio.Event()
        #: The limit for the end in seconds, and its reason.
        self.end: asyncio.Future[tuple[float, str]] = asyncio.get_running_loop().create_future()
        self.on_stop.append(lambda within_ms: self._finish(within_ms / 1000, ""))

    def _finish(self, within_s: float, reason: str) -> None:
        if not self.end.done():
            self.end.set_result((min(_END_WITHIN_S, within_s), reason))

    def _take_from_supervisor(self, message: Any, descriptors: list[int]) -> None:
        super()._take_from_supervisor(message, descriptors)
        self.has_news.set()


async def _run(lifeline: Lifeline) -> None:
    gateway = _WatchedGateway(lifeline)
    starting = asyncio.ensure_future(gateway.start())
    await asyncio.wait((starting, gateway.end), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        return  # nothing was announced
    await starting
    request_log.configure()
    announcer = Announcer(gateway, gateway.has_news)
    running = asyncio.ensure_future(announcer.run())
    await asyncio.wait((running, gateway.end), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    within_s, reason = await gateway.end
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(announcer.finish(reason, within_s), within_s)


def main() -> None:
    parser = argparse.ArgumentParser(prog="zmqtriton_extras.fleet.announcing")
    parser.add_argument("--lifeline", type=int, required=True)
    arguments = parser.parse_args()
    prctl.set_name("zmqtriton-announcer")
    prctl.hide_memory()
    # It ends when the supervisor says so or dies, never by a signal to the whole group.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    status = 0
    try:
        asyncio.run(_run(Lifeline.inherited(arguments.lifeline)))
    except Exception:  # noqa: BLE001 - an edge: it is logged, and another process takes over
        _log.exception("announcing has failed")
        status = 1
    sys.stderr.flush()
    # a thread may still wait for a place that does not answer
    os._exit(status)


if __name__ == "__main__":
    main()
