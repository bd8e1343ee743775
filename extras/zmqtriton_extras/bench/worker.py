"""A process of clients: runs plans that come as lines on stdin, and reports each on stdout.

`stop` ends the running plan. The end of stdin ends the process, which also dies with its parent.
"""

from __future__ import annotations

import json
import math
import queue
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from zmqtriton.sdk.process import prctl
from zmqtriton_extras.bench.clients import STOP
from zmqtriton_extras.bench.connections import Connection, RequestFailed, make_connection

#: Seconds between two looks for a stop, and for a response that is too late.
_LOOK_EVERY_S = 0.2
#: Seconds for clients to end after a stop; the others end with the process.
_END_WITHIN_S = 2.0
#: Fields of a plan that may change while its connections are kept.
_OF_ONE_RUN = ("seconds", "rate")
#: Pause in seconds after a failure, so that a server that refuses at once is not flooded.
_PAUSE_S = 0.01


class Schedule:
    """The moments at which requests are due, for all clients of this process."""

    def __init__(self, rate: float, seconds: float, stop: threading.Event) -> None:
        """Set up; rate 0 is a closed loop: the next request is due when one is answered."""
        self._gap_s = 1 / rate if rate else 0.0
        self._seconds = seconds
        self._next_s = self._end_s = -math.inf
        self._lock = threading.Lock()
        self._may_begin = threading.Event()
        self._stop = stop

    def begin(self) -> None:
        """Let all clients begin that wait in next_due_s()."""
        self._next_s = time.perf_counter()
        self._end_s = self._next_s + self._seconds
        self._may_begin.set()

    def wait_for_begin(self) -> None:
        self._may_begin.wait()

    def next_due_s(self, now_s: float) -> float | None:
        """Wait for the next due moment, which is past if all clients were busy; None at the end."""
        if not self._gap_s:
            return now_s if now_s < self._end_s and not self._stop.is_set() else None
        with self._lock:
            due_s, self._next_s = self._next_s, self._next_s + self._gap_s
        if due_s < self._end_s:
            self._stop.wait(max(0.0, due_s - time.perf_counter()))
        return due_s if due_s < self._end_s and not self._stop.is_set() else None

    def pause(self) -> None:
        """Wait a moment, or until the run is stopped."""
        self._stop.wait(_PAUSE_S)

    def is_stopped(self) -> bool:
        return self._stop.is_set()


class Client:
    """One client with a connection of its own; its times are in microseconds."""

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        self.connection = connection
        self.latencies: list[int] = []
        #: Times of streams until the first response, and between responses.
        self.first: list[int] = []
        self.between: list[int] = []
        self.failures: Counter[str] = Counter()
        #: True once the client has failed with an exception; it takes part in no more runs.
        self.is_broken = False
        self._timeout_s = timeout_s
        #: When the request under way was sent.
        self._sent_s = math.inf
        self._is_late = False

    def open(self) -> None:
        """Open the connection; if that fails, the client's first request fails with the reason."""
        with suppress(RequestFailed):
            self.connection.open()

    def ask_all(self, schedule: Schedule) -> None:
        """Send requests until the schedule ends."""
        # Each request looks up and calls what is here, on a core that the server may need, too.
        ask, next_due_s, clock = self.connection.ask, schedule.next_due_s, time.perf_counter
        append = self.latencies.append
        schedule.wait_for_begin()
        now_s = clock()
        while (due_s := next_due_s(now_s)) is not None:
            self._sent_s = now_s if due_s == now_s else clock()
            try:
                arrivals = ask()
            except RequestFailed as error:
                self._sent_s = math.inf
                if schedule.is_stopped():
                    return  # it was interrupted
                self._note(str(error))
                schedule.pause()
                now_s = clock()
                continue
            self._sent_s = math.inf
            now_s = clock()
            append(round((now_s - due_s) * 1e6))
            if arrivals:
                self.first.append(round((arrivals[0] - due_s) * 1e6))
                self.between += [round((b - a) * 1e6) for a, b in pairwise(arrivals)]

    def _note(self, reason: str) -> None:
        if self._is_late:
            reason, self._is_late = f"no answer within {self._timeout_s:g} s", False
            self.connection.close()
        self.failures[reason] += 1

    def look(self, now_s: float) -> None:
        """Let the request in progress fail if it takes too long; called from another thread."""
        if now_s - self._sent_s > self._timeout_s:
            self._is_late = True
            self.connection.interrupt()

    def end(self, error: Exception) -> None:
        """Count an error that ends the client as a failed request."""
        self.is_broken = True
        self.failures[str(error) or repr(error)] += 1


class PlanRun:
    """A run of a plan, with a client for each connection."""

    def __init__(
        self, plan: Mapping[str, Any], connections: Sequence[Connection], stop: threading.Event
    ) -> None:
        self._plan = plan
        self._clients = [Client(connection, plan["timeout_s"]) for connection in connections]
        self._stop = stop
        self._look_every_s = min(_LOOK_EVERY_S, plan["timeout_s"] / 4)

    def run(self) -> dict[str, Any]:
        """Run until the time is over and all is answered, or until a stop; return the report."""
        schedule = Schedule(self._plan["rate"], self._plan["seconds"], self._stop)
        self._await(self._start(Client.open))
        threads = self._start(lambda client: client.ask_all(schedule))
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        schedule.begin()
        self._await(threads)
        seconds, busy_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
        if self._stop.is_set():
            self._end(threads)
        return {
            "seconds": seconds,
            "latencies": [each for client in self._clients for each in client.latencies],
            "first": [each for client in self._clients for each in client.first],
            "between": [each for client in self._clients for each in client.between],
            "failures": sum((client.failures for client in self._clients), Counter[str]()),
            "client_cores": busy_s / seconds if seconds else 0.0,
        }

    def _start(self, work: Callable[[Client], None]) -> list[threading.Thread]:
        """Start a thread for each client that can continue."""

        def run(client: Client) -> None:
            try:
                work(client)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
                client.end(error)

        threads = []
        for client in self._clients:
            if client.is_broken:
                continue
            thread = threading.Thread(target=run, args=(client,), daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the machine allows no more threads
                client.end(error)
            else:
                threads.append(thread)
        return threads

    def _await(self, threads: Sequence[threading.Thread]) -> None:
        """Wait until all threads have ended, or until the stop."""
        for thread in threads:
            while thread.is_alive() and not self._stop.is_set():
                thread.join(self._look_every_s)
                if thread.is_alive():
                    now_s = time.perf_counter()
                    for client in self._clients:
                        client.look(now_s)

    def _end(self, threads: Sequence[threading.Thread]) -> None:
        until_s = time.perf_counter() + _END_WITHIN_S
        for client in self._clients:
            client.connection.interrupt()
        for thread in threads:
            thread.join(max(0.0, until_s - time.perf_counter()))


class Connections:
    """The connections of the newest plan, which the next plan keeps if it sends the same requests.

    So a warm-up opens the connections that the measurement uses.
    """

    def __init__(self) -> None:
        self._plan: dict[str, Any] = {}
        self._connections: list[Connection] = []

    def of_plan(self, plan: Mapping[str, Any]) -> list[Connection]:
        key = {name: value for name, value in plan.items() if name not in _OF_ONE_RUN}
        if key != self._plan:
            self.close()
            self._plan = key
            self._connections = [make_connection(plan) for _ in range(plan["concurrency"])]
        return self._connections

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections = []


def _read(plans: queue.SimpleQueue[bytes], stop: threading.Event) -> None:
    for line in sys.stdin.buffer:
        if line.strip() == STOP.encode():
            stop.set()
        else:
            plans.put(line)
    stop.set()
    plans.put(b"")


def main() -> None:
    plans: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    stop = threading.Event()
    threading.Thread(target=_read, args=(plans, stop), daemon=True).start()
    connections = Connections()
    while line := plans.get():
        plan = json.loads(line)
        report = PlanRun(plan, connections.of_plan(plan), stop).run()
        sys.stdout.write(json.dumps(report) + "\n")
        sys.stdout.flush()
    connections.close()


def _run() -> None:
    prctl.die_with(int(sys.argv[1]))
    # each connection needs a descriptor, and a shell usually allows 1024
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    main()


if __name__ == "__main__":
    _run()
