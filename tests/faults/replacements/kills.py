"""Kills of the old or the new server at each step of a take-over; the other one has to serve."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import psutil

from tests.faults.deaths import kill_whole
from tests.faults.replacements.clients import CROWD, Client, Crowd, crowd
from tests.faults.replacements.ways import ByTakeOver
from tests.support.server import Server
from tests.support.waiting import eventually

_WITHIN_S = 180.0
#: For so long a client may not have read that its connection is gone.
_UNREAD_S = 1.0
#: What libraries call that: gRPC's of C and of JavaScript, and the one below tritonclient.http.
#: Where nobody listens they say "Connection refused".
_CONNECTION_ENDS = (
    "Stream removed (recvmsg:Connection reset by peer (104))",
    "Connection dropped",
    "connection closed.",
)


class Kill(NamedTuple):
    """The server that is killed, and the step."""

    is_old: bool
    step: str

    def __str__(self) -> str:
        return f"the {'old' if self.is_old else 'new'} server when {self.step}"


#: What one of the servers has logged by then, and whether that is the old one. A moment after it
#: listens the new one is alone: if it is killed then, nobody is left who would serve.
_STEPS = {
    "the new one has the sockets": (False, "takes over from"),
    "it loads its models": (False, "loading: "),
    "it has loaded them": (False, "Started Metrics Service"),
    "it listens": (False, "Started GRPCInferenceService"),
    "the old one leaves": (True, "this one leaves"),
}
#: Where the new one is held: soon afterwards it would listen, and the old one leave.
_BEFORE_IT_LISTENS = [*_STEPS][:-2]
KILLS = [Kill(True, step) for step in _STEPS] + [Kill(False, step) for step in _BEFORE_IT_LISTENS]


def kill_during(way: ByTakeOver, kill: Kill) -> float:
    """Begin a take-over, kill a server at that step, and return when all of it was gone."""
    old = way.servers[-1]
    new = way.next()
    way.servers.append(new)
    is_of_old, text = _STEPS[kill.step]
    sayer, victim = old if is_of_old else new, old if kill.is_old else new
    said = sayer.log_text().count(text)
    new.launch()
    held: set[psutil.Process] = set()

    def is_there() -> bool:
        if kill.step in _BEFORE_IT_LISTENS:
            _hold(new, held)
        return sayer.log_text().count(text) > said

    eventually(is_there, _WITHIN_S, kill.step)
    kill_whole(victim)
    gone_s = time.monotonic()
    if kill.is_old:
        for process in held:
            with suppress(psutil.NoSuchProcess):  # given up as hung, and replaced
                process.resume()
        eventually(lambda: "Started HTTPService" in new.log_text(), _WITHIN_S, "it listens")
    else:
        way.servers.remove(new)
    return gone_s


def _hold(server: Server, held: set[psutil.Process]) -> None:
    """Stop the server's processes for HTTP, also those that came in place of hung ones."""
    for pid in server.pids().get("http", ()):
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process not in held:
                process.suspend()
                held.add(process)


async def kill_under_load(
    way: ByTakeOver, kill: Kill, numbers: Crowd = CROWD, pause_s: float = 2.0
) -> tuple[list[Client], list[str], bool]:
    """Return the clients, what may not be, and whether the other one serves all of them.

    What may not be is failures of what the killed one never had.

    Those are of requests, sequences and streams that began when all its processes were gone, and
    on a connection that did.
    """
    async with crowd(way.http_port, way.grpc_port, numbers) as clients:
        await asyncio.sleep(pause_s)
        gone_s = await asyncio.to_thread(kill_during, way, kill)
        served = {client: client.right for client in clients}
        serves = await _until(lambda: all(c.right > served[c] for c in clients))
    wrong = [
        f"{client.label}: begun {begun_s - gone_s:.3f} s after the end: {text}"
        for client in clients
        for begun_s, text in client.failures
        if not _had_it(begun_s - gone_s, text)
    ]
    return clients, wrong, serves


def _had_it(after_s: float, text: str) -> bool:
    """Return whether a request that failed was the killed server's.

    A library does not tell when it connected. One that has not read yet that its connection is gone
    makes another request on it.
    """
    return after_s <= 0 or (after_s < _UNREAD_S and text.endswith(_CONNECTION_ENDS))


async def _until(is_true: Callable[[], bool]) -> bool:
    end_s = time.monotonic() + _WITHIN_S
    while not (holds := is_true()) and time.monotonic() < end_s:
        await asyncio.sleep(0.1)
    return holds
