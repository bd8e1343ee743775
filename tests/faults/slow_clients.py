"""Thousands of connections that send the bytes of a head one by one, while others ask.

    python -m tests.faults.slow_clients [--connections 4000]

Each has to be told 408 in time, and those who ask must be answered all the while; the times of the
latter are printed, without and with the slow ones.
"""

from __future__ import annotations

import argparse
import resource
import selectors
import socket
import sys
import tempfile
import time
from pathlib import Path

from tests.support import leaks
from tests.support.server import Server
from zmqtriton_addons.tools.benching.results import percentile

_HEAD = b"POST /v2/models/identity_fp32/infer HTTP/1.1\r\nX-Slow: "
_BYTE_EVERY_S = 5.0
#: The limit of ours, the second in which it is looked for, and a busy machine.
_WITHIN_S = 30.0


def response_times_ms(server: Server, seconds: float) -> list[float]:
    """Return how long each of many questions took, sorted."""
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        assert server.status("/v2/health/live") == 200
        times.append((time.perf_counter() - began) * 1e3)
        time.sleep(0.01)
    return sorted(times)


class SlowClients:
    """The connections, and what became of them."""

    def __init__(self, port: int, count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._next_s = time.monotonic() + _BYTE_EVERY_S
        self.answered = 0
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.sendall(_HEAD)
            self._selector.register(connection, selectors.EVENT_READ)

    @property
    def open(self) -> list[socket.socket]:
        return [key.fileobj for key in self._selector.get_map().values()]  # type: ignore[misc]

    def step(self) -> None:
        """Takes what has come, and sends a byte where it is time."""
        for key, _ in self._selector.select(0):
            connection: socket.socket = key.fileobj  # type: ignore[assignment]
            self.answered += connection.recv(1 << 12).startswith(b"HTTP/1.1 408 ")
            self._selector.unregister(connection)
            connection.close()
        if time.monotonic() >= self._next_s:
            self._next_s += _BYTE_EVERY_S
            for connection in self.open:
                connection.send(b"a")

    def close(self) -> None:
        for connection in self.open:
            connection.close()
        self._selector.close()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--connections", type=int, default=4000)
    count = parser.parse_args().connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, count + 500), hard), hard))
    leaks.mark_session()
    folder = tempfile.TemporaryDirectory()
    with folder, Server(Path(folder.name) / "s", ["identity_fp32"]) as server:
        alone = response_times_ms(server, 3)
        connecting = time.monotonic()
        slow = SlowClients(server.http_port, count)
        began = time.monotonic()
        print(f"{count} connected within {began - connecting:.1f} s", flush=True)
        beside: list[float] = []
        while slow.open and time.monotonic() - began < _WITHIN_S:
            slow.step()
            beside += response_times_ms(server, 0.2)
        took = time.monotonic() - began
        left = len(slow.open)
        slow.close()
        beside.sort()
        for name, times in (("alone", alone), ("beside them", beside)):
            p50, p99 = percentile(times, 50), percentile(times, 99)
            print(f"{name:12} p50 {p50:7.2f} ms  p99 {p99:7.2f} ms  max {times[-1]:7.2f} ms")
        print(f"{slow.answered} of {count} were told 408, the last after {took:.1f} s; {left} left")
        assert slow.answered == count
    return 0


if __name__ == "__main__":
    sys.exit(main())
