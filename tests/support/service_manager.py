"""A service manager: the receiving end of a notify socket, as systemd has it."""

from __future__ import annotations

import queue
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

#: Systemd would kill after this; the server speaks three times as often.
WATCHDOG_S = 0.6


class Manager:
    """The receiving end of a notify socket.

    It reads all the time, as the kernel keeps only a few messages for it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(0.1)
        self._messages: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self._is_over = threading.Event()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        while not self._is_over.is_set():
            with suppress(TimeoutError):
                self._messages.put(self._socket.recv(4096).decode().splitlines())

    @property
    def environment(self) -> dict[str, str]:
        return {"NOTIFY_SOCKET": str(self.path), "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6))}

    def receive(self, within_s: float) -> list[str]:
        """The lines of the next message; none if there is none in that time."""
        try:
            return self._messages.get(timeout=max(0.001, within_s))
        except queue.Empty:
            return []

    def hear_until(self, line: str, within_s: float = 30.0) -> list[str]:
        """All lines up to that one, which must come."""
        heard: list[str] = []
        deadline = time.monotonic() + within_s
        while line not in heard:
            assert time.monotonic() < deadline, f"no {line} in {heard}"
            heard += self.receive(deadline - time.monotonic())
        return heard

    def hear_for(self, seconds: float) -> list[str]:
        deadline = time.monotonic() + seconds
        heard: list[str] = []
        while time.monotonic() < deadline:
            heard += self.receive(deadline - time.monotonic())
        return heard

    def close(self) -> None:
        self._is_over.set()
        self._reading.join()
        self._socket.close()
