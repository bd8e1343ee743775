"""A ROUTER in the broker's place, for tests of its peers: asked message by message."""

from __future__ import annotations

import select
import time

from zmqtriton_floor.zmtp import Router, ZmtpConnection


class FakeRouter:
    """Peers are called by what they were given as identities, as libzmq does."""

    def __init__(self, address: str) -> None:
        self._epoll = select.epoll()
        self._router = Router(address, self._epoll)
        self._identities: dict[ZmtpConnection, bytes] = {}

    def fileno(self) -> int:
        return self._epoll.fileno()

    def poll(self, timeout_ms: int) -> bool:
        """Return True if there is a message, now or within this time."""
        deadline = time.monotonic() + timeout_ms / 1000
        while not self._router.inbox:
            ready = self._epoll.poll(max(0.0, deadline - time.monotonic()))
            for descriptor, events in ready:
                if descriptor in self._router.hears:
                    self._router.hears[descriptor](events)
            if not ready and time.monotonic() >= deadline:
                break
        return bool(self._router.inbox)

    def receive(self) -> list[bytes]:
        """Return who has sent it and its frames; blocks until there is one."""
        while not self.poll(1000):
            pass
        connection, frames = self._router.inbox.popleft()
        return [self._identities.setdefault(connection, b"%d" % len(self._identities)), *frames]

    def send(self, message: list[bytes]) -> None:
        """To whom, and the frames; nothing happens where that one is gone."""
        for connection, identity in self._identities.items():
            if identity == message[0]:
                self._router.write(connection, message[1:])
        self._router.flush()

    def close(self) -> None:
        """Twice does no harm."""
        if not self._epoll.closed:
            self._router.close_all()
            self._epoll.close()
