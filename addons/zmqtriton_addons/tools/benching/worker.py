"""A process of clients: runs plans that come as lines on stdin, and reports each on stdout.

`stop` ends the plan that runs, the end of stdin the process, which also dies with its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import resource
import sys
import time
from collections import Counter
from typing import Any

from zmqtriton_addons.tools.benching.clients import STOP
from zmqtriton_addons.tools.benching.connections import Connection, RequestFailed, make_connections
from zmqtriton_floor import prctl

#: After a failure, so that a server that refuses at once is not flooded.
_PAUSE_S = 0.01


class Schedule:
    """The moments at which requests are due, for all connections of this process."""

    def __init__(self, rate: float) -> None:
        """A rate of 0 is that of a closed loop: the next one is due when one is answered."""
        self._gap_s = 1 / rate if rate else 0.0
        self._next_s = time.perf_counter()

    async def next_due_s(self) -> float:
        """Wait for the next moment, which may be over if all connections were busy."""
        if not self._gap_s:
            return time.perf_counter()
        due_s, self._next_s = self._next_s, self._next_s + self._gap_s
        wait_s = due_s - time.perf_counter()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        return due_s


class PlanRun:
    def __init__(self, plan: dict[str, Any], has_stopped: asyncio.Event) -> None:
        self._plan = plan
        self._has_stopped = has_stopped
        self._latencies: list[int] = []
        self._first: list[int] = []
        self._between: list[int] = []
        self._failures: Counter[str] = Counter()

    async def run(self) -> dict[str, Any]:
        """Run all clients until the time is over or they are stopped."""
        async with make_connections(self._plan) as connections:
            began_s, began_cpu_s = time.perf_counter(), time.process_time()
            schedule, until_s = Schedule(self._plan["rate"]), began_s + self._plan["seconds"]
            clients = [
                asyncio.ensure_future(self._be_client(connection, schedule, until_s))
                for connection in connections
            ]
            stopped = asyncio.ensure_future(self._has_stopped.wait())
            everything = asyncio.ensure_future(asyncio.wait(clients))
            await asyncio.wait([everything, stopped], return_when=asyncio.FIRST_COMPLETED)
            seconds = time.perf_counter() - began_s
            busy_s = time.process_time() - began_cpu_s
            for task in (*clients, everything, stopped):
                task.cancel()
            ends = await asyncio.gather(*clients, everything, stopped, return_exceptions=True)
        self._failures.update(str(end) or repr(end) for end in ends if isinstance(end, Exception))
        return {
            "seconds": seconds,
            "latencies": self._latencies,
            "first": self._first,
            "between": self._between,
            "failures": dict(self._failures),
            "client_cores": busy_s / seconds if seconds else 0.0,
        }

    async def _be_client(self, connection: Connection, schedule: Schedule, until_s: float) -> None:
        # up to Python 3.11 wait_for() forgets that it was cancelled if the answer is there, too
        while not self._has_stopped.is_set():
            due_s = await schedule.next_due_s()
            if due_s >= until_s:
                return
            try:
                arrivals = await asyncio.wait_for(connection.ask(), self._plan["timeout_s"])
            except asyncio.TimeoutError:
                self._failures[f"no answer within {self._plan['timeout_s']:g} s"] += 1
                connection.close()
            except RequestFailed as error:
                self._failures[str(error)] += 1
                await asyncio.sleep(_PAUSE_S)
            else:
                self._record(due_s, time.perf_counter(), arrivals)

    def _record(self, due_s: float, now_s: float, arrivals: list[float]) -> None:
        self._latencies.append(round((now_s - due_s) * 1e6))
        if arrivals:
            self._first.append(round((arrivals[0] - due_s) * 1e6))
            gaps = itertools.pairwise(arrivals)
            self._between += [round((later - sooner) * 1e6) for sooner, later in gaps]


async def main() -> None:
    plans: asyncio.Queue[str] = asyncio.Queue()
    has_stopped = asyncio.Event()
    received = bytearray()

    def receive() -> None:
        data = os.read(sys.stdin.fileno(), 1 << 16)
        received.extend(data)
        while b"\n" in received:
            line, _, rest = received.partition(b"\n")
            received[:] = rest
            if line == STOP.encode():
                has_stopped.set()
            else:
                plans.put_nowait(line.decode())
        if not data:
            has_stopped.set()
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            plans.put_nowait("")

    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), receive)
    while plan := await plans.get():
        report = await PlanRun(json.loads(plan), has_stopped).run()
        sys.stdout.write(json.dumps(report) + "\n")
        sys.stdout.flush()


def _run() -> None:
    prctl.die_with(int(sys.argv[1]))
    # each connection needs a descriptor, and a shell usually allows 1024
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.install()
    asyncio.run(main())


if __name__ == "__main__":
    _run()
