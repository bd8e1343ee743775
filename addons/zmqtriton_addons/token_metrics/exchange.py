"""The way from a frontend to the process of tokens, and back."""

from __future__ import annotations

from collections.abc import Callable

from zmqtriton_addons.capture.line import Line

#: The first line of a frontend, which wants to be told.
HELLO = b"[]\n"
_READ_BYTES = 64 << 10


class Exchange(Line):
    def __init__(
        self, path: str, take: Callable[[bytes], None], memory: Callable[[], bytes] = bytes
    ) -> None:
        """Set up; `take` gets each line of the process, and `memory` has those for a new one."""
        super().__init__(path)
        self._take = take
        self._memory = memory
        self._rest = b""

    def close(self) -> None:
        if self._socket is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
        super().close()

    def _connect(self) -> None:
        super()._connect()
        if self._socket is not None and self._loop is not None:
            self._rest = b""
            self._loop.add_reader(self._socket, self._receive)
            self.send(HELLO + self._memory())

    def _receive(self) -> None:
        if self._socket is None:
            return
        try:
            data = self._socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.close()  # it is being replaced
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)
