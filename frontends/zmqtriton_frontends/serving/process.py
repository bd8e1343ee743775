"""The life of a process that serves clients, whatever protocol they speak.

It waits until the server opens, and serves. While the server drains or stops, it sends clients
elsewhere; it ends when they have gone or the time is up. A `Service` has the protocol's part.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures.thread  # noqa: F401 - else the loop does, at its first thread
import gc
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from zmqtriton_floor import logs, prctl, wire
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_frontends.gateway.gateway import NEW_SEQUENCES_S, Gateway
from zmqtriton_frontends.process import request_log
from zmqtriton_frontends.process.allocator import UnusedMemory, keep_freed_memory
from zmqtriton_frontends.process.ledger import Ledger
from zmqtriton_frontends.process.room import Room
from zmqtriton_frontends.serving import connections

_log = logging.getLogger(__name__)

#: Seconds between two calls of Service.check().
_CHECK_EVERY_S = 1.0
#: Seconds between two looks whether the clients of a process that leaves have gone.
_LEAVE_STEP_S = 0.02
#: Seconds for sending errors to the clients that were not answered in time.
_LAST_WORDS_S = 0.2
#: Seconds that the loop waits for a thread that computes, a dozen times in a request.
_SWITCH_S = 0.0005

Call = Callable[[str, dict[str, Any]], Awaitable[Any]]
#: Counters by name, each by the value of its label.
Counts = Mapping[str, Mapping[str, int]]


class Service:
    """The protocol's part of a process, as hooks; each does nothing by default."""

    #: Name of the service in its report on clients; "" without a report.
    role = ""
    #: The memory that its clients make the process hold; only a service with a role has it.
    ledger: Ledger
    #: Open connections of its clients, for operators.
    room: Room[Any] | tuple[()] = ()
    #: Set if another server takes clients that connect when this one has left.
    shares_port = False
    #: Bearer tokens of its clients; None if they need none.
    tokens: Any = None

    async def open(self) -> Sequence[tuple[str, str]]:
        """Let clients connect; return the names and addresses of services.

        Raises RuntimeError or OSError if clients cannot connect.
        """
        return ()

    def count_connections(self) -> int:
        return len(self.room)

    def name_of_token(self, values: Sequence[str]) -> str:
        """Return the name of the token in the values of a request; "" if unknown."""
        return "" if self.tokens is None else str(self.tokens.name_of(values))

    def counts(self) -> Counts:
        """Return counters for metrics."""
        return {}

    def check(self) -> None:
        """Do the work of each second, from `open` to `close`."""

    def leave(self, is_leaving: bool) -> None:
        """Send clients elsewhere while the server drains or stops; or no longer after a drain."""

    async def end(self, within_s: float) -> None:
        """Accept nothing more, and make the next response to each client its last."""

    def end_idle(self) -> bool:
        """End clients without requests in progress; return whether all have gone."""
        return True

    async def close(self) -> None:
        """End the remaining connections, and close everything."""


class ServingProcess:
    """One process from its start to its end; made and run on its own loop."""

    def __init__(
        self,
        gateway: Gateway,
        make: Callable[[Gateway], Service],
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """Set up; `make` is called when settings have come, `on_stop` when the server stops."""
        self._gateway = gateway
        self._make = make
        self._on_stop = on_stop
        self._is_stopped = asyncio.Event()
        #: Time at which it ends at the latest, on the loop's clock.
        self._end_s = math.inf

    def stop(self, within_s: float) -> None:
        """End within this time, or earlier if an earlier end is set."""
        self._end_s = min(self._end_s, asyncio.get_running_loop().time() + within_s)
        self._is_stopped.set()

    async def run(self) -> None:
        """Serve until the process is stopped. Raises the errors of Service.open."""
        sys.setswitchinterval(_SWITCH_S)
        gateway, is_open = self._gateway, asyncio.Event()
        gateway.on_open.append(is_open.set)
        gateway.on_stop.append(self._stop)
        try:
            if await self._has_time(gateway.start()):
                request_log.configure()
                service = self._make(gateway)
                if await self._has_time(is_open.wait()):
                    await self._serve(service)
        finally:
            gateway.close()

    def _stop(self, within_ms: int) -> None:
        self.stop(within_ms / 1000)
        self._on_stop()

    async def _has_time(self, work: Coroutine[Any, Any, Any]) -> bool:
        """Wait until work is done; return False if the process is stopped before."""
        working = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._is_stopped.wait())
        await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if self._is_stopped.is_set():
            working.cancel()
            return False
        await working  # otherwise its error would go unnoticed
        return True

    async def _serve(self, service: Service) -> None:
        gateway = self._gateway
        gateway.begins_sequences_s = (
            math.inf if service.shares_port or gateway.has_successor else NEW_SEQUENCES_S
        )
        # made before clients connect: it compares with the figures of then
        report = ClientReport(service, gateway.call) if service.role else None
        listening = await service.open()
        checking = asyncio.ensure_future(check(service, report))
        # what exists now lives as long as the process; the collector need not look at it again
        gc.collect()
        gc.freeze()
        # of a service without clients of its own as well: the server is open once all have opened
        gateway.opened(listening)

        def leave() -> None:
            service.leave(gateway.is_stopping or gateway.catalogue.is_draining)

        def call(message: wire.Call) -> wire.CallResult:
            return connections.answer(message, service.role, service.room, service.name_of_token)

        for changes in (gateway.on_retire, gateway.catalogue.on_draining):
            changes.append(leave)
        if service.role:
            gateway.on_call = call
        leave()
        await self._is_stopped.wait()
        await end(service, lambda: self._end_s, gateway.give_up)
        checking.cancel()


class ClientReport:
    """Reports a service's clients to the supervisor, for metrics and the status.

    Once a second at most: the memory that clients take, their number, and counters of the protocol.
    A request itself adds only to counters of this process.
    """

    def __init__(self, service: Service, call: Call) -> None:
        """Set up; `call` calls the supervisor."""
        self._service = service
        self._call = call
        self._figures = self._read()
        self._telling: asyncio.Task[None] | None = None

    def _read(self) -> dict[str, Any]:
        service = self._service
        return {
            "role": service.role,
            "memory": service.ledger.figures(),
            "connections": service.count_connections(),
            "counts": {name: dict(values) for name, values in service.counts().items()},
        }

    def check(self) -> None:
        """Report the figures if they have changed; called once a second."""
        self._service.ledger.check()
        figures = self._read()
        if figures != self._figures and self._telling is None:
            self._figures = figures
            self._telling = asyncio.get_running_loop().create_task(self._tell(figures))

    async def _tell(self, figures: dict[str, Any]) -> None:
        with suppress(ZmqTritonError):  # the server ends, and so do its metrics
            await self._call("clients", figures)
        self._telling = None


async def check(service: Service, report: ClientReport | None) -> None:
    """Do the work of each second until cancelled."""
    # large messages pass those that have clients of their own, again and again
    unused = UnusedMemory() if service.role else UnusedMemory(kept=0)
    while True:
        try:
            service.check()
            unused.check()
            if report is not None:
                report.check()
        except Exception:  # noqa: BLE001 - an edge: clients are served without checks, too
            _log.exception("the work of a second has failed")
        await asyncio.sleep(_CHECK_EVERY_S)


async def end(service: Service, end_s: Callable[[], float], give_up: Callable[[], None]) -> None:
    """End a service when its clients have gone, or at a time that may still become earlier.

    At that time `give_up` answers the remaining requests with errors.
    """
    now = asyncio.get_running_loop().time
    await service.end(max(0.0, end_s() - now()))
    while not service.end_idle():
        if now() >= end_s():
            _log.warning("left with clients that were not answered in time")
            give_up()
            await asyncio.sleep(_LAST_WORDS_S)
            break
        await asyncio.sleep(_LEAVE_STEP_S)
    await service.close()


def begin(name: str, sockets: Iterable[str]) -> tuple[Lifeline, dict[str, int]]:
    """Take the name, lifeline and sockets of a process from its command line.

    Returns the lifeline, and the inherited descriptors of sockets.
    """
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--lifeline", type=int, required=True, metavar="FD")
    for option in sockets:
        parser.add_argument(f"--{option}", type=int, metavar="FD", dest=option)
    parser.add_argument("--also", action="append", default=[], metavar="NAME=FD")
    arguments = vars(parser.parse_args())
    prctl.set_name(name)
    prctl.hide_memory()
    prctl.die_with(os.getppid())
    lifeline = Lifeline.inherited(arguments.pop("lifeline"))
    others = (each.partition("=") for each in arguments.pop("also"))
    descriptors = {option: number for option, number in arguments.items() if number is not None}
    return lifeline, {**descriptors, **{name: int(number) for name, _, number in others}}


def run(
    name: str,
    sockets: Sequence[str],
    make: Callable[[Gateway, Mapping[str, socket.socket]], Service],
    *,
    is_small: bool = False,
) -> int:
    """Run a process that serves on inherited sockets; return its exit status.

    `is_small` is for a process with little traffic, which should take little memory; SIGTERM stops
    it as well.
    """
    lifeline, descriptors = begin(name, sockets)
    logs.configure()
    bound = {option: socket.socket(fileno=number) for option, number in descriptors.items()}

    async def live() -> None:
        process = ServingProcess(Gateway(lifeline), lambda gateway: make(gateway, bound))
        if is_small:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, process.stop, 0.0)
        await process.run()

    try:
        if is_small:
            asyncio.run(live())
        else:
            import uvloop  # which small processes do not have

            keep_freed_memory()
            uvloop.run(live())
    except (RuntimeError, OSError) as error:
        _log.error("%s", error)
        return 1
    return 0


def run_local(name: str, make: Callable[[Gateway, socket.socket], Service]) -> int:
    """Run a small process with one socket, for frontends and programs on this machine."""
    return run(
        name, ["socket"], lambda gateway, bound: make(gateway, bound["socket"]), is_small=True
    )
