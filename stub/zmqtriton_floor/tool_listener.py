"""Listening sockets for a person's tool, such as an editor, on the same machine.

Any program of the machine can reach such a socket, and so can a web page through a browser; so core
and add-ons use ToolListener (`zmqtriton.sdk.process`); tests/repo finds other sockets. It knows no
tool: its user says how a head begins. It also runs in models' interpreters.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from typing import Any, Callable, Collection, Dict, Optional, Set, Tuple

#: Maximum time for the head of a caller, from its connection to the last byte.
HEAD_WITHIN_S = 1.0
#: Maximum number of callers without a whole head; a further one replaces the first.
MAX_CALLERS = 64
_MAX_HEAD_BYTES = 4096
#: The pause after a connection that could not be accepted, for example without a free descriptor.
_PAUSE_S = 0.02
_CREDENTIALS = struct.Struct("3i")


class ToolListener:
    """A listening socket that lets in the first caller with the right user and the right head.

    The law of all sockets that wait for a person's tool:

    - The kernel names the caller's user first. A connection of another user is closed unread.
    - A caller has HEAD_WITHIN_S for its whole head.
    - Callers do not wait for each other: a silent or slow one delays no other caller.
    - The first bytes decide. A caller with another beginning is closed without a response, none of
      its bytes is passed on, and the socket stays open. Choose a head that no browser can send.
    - The wait itself has an end.

    The head of the caller that is let in has been read, and no byte behind it.
    """

    def __init__(
        self,
        listener: socket.socket,
        users: Collection[int],
        head: Callable[[bytes], int],
        *,
        user_of: Callable[[socket.socket], int] = lambda connection: peer_of(connection)[1],
        on_refusal: Callable[[str], object] = lambda why: None,
    ) -> None:
        """Set up with a listening socket, which admit() closes.

        `head` returns the size of the head at the beginning of its bytes, 0 if that is not whole
        yet, and -1 for bytes of something else. `on_refusal` gets the reason, which follows
        "A connection".
        """
        listener.setblocking(False)
        self._listener = listener
        self._users = users
        self._head = head
        self._user_of = user_of
        self._on_refusal = on_refusal
        #: Deadlines of callers, and the bytes of their heads so far; the first caller first.
        self._callers: Dict[socket.socket, Tuple[float, bytes]] = {}

    def admit(
        self, until_s: float, end: Optional[socket.socket] = None
    ) -> Optional[Tuple[socket.socket, bytes]]:
        """Return the connection and the head of the caller that is let in; close all others.

        Returns None at this time of the monotonic clock, or once the socket `end` is readable.
        """
        with self._listener:
            try:
                while time.monotonic() < until_s:
                    ready = self._await_any(until_s, end)
                    if end in ready:
                        break
                    if self._listener in ready:
                        self._accept()
                    for caller, (late_s, _) in list(self._callers.items()):
                        if caller in ready and self._read(caller):
                            return caller, self._callers.pop(caller)[1]
                        if late_s <= time.monotonic():
                            self._turn_away(
                                caller, f"that took longer than {HEAD_WITHIN_S:g} s to begin"
                            )
                return None
            finally:
                for caller in self._callers:
                    caller.close()

    def _await_any(self, until_s: float, end: Optional[socket.socket]) -> Set[Any]:
        """Wait for a socket that can be read, or for the next deadline."""
        with selectors.PollSelector() as selector:
            for waited in filter(None, (self._listener, end, *self._callers)):
                selector.register(waited, selectors.EVENT_READ)
            next_s = min([until_s, *(late_s for late_s, _ in self._callers.values())])
            return {key.fileobj for key, _ in selector.select(max(0.0, next_s - time.monotonic()))}

    def _accept(self) -> None:
        try:
            caller, _ = self._listener.accept()
        except OSError:  # it has gone, or there is no descriptor for it
            time.sleep(_PAUSE_S)
            return
        caller.setblocking(False)
        self._callers[caller] = time.monotonic() + HEAD_WITHIN_S, b""
        if self._user_of(caller) not in self._users:
            self._turn_away(caller, "of another user")
        elif len(self._callers) > MAX_CALLERS:
            self._turn_away(next(iter(self._callers)))

    def _read(self, caller: socket.socket) -> bool:
        """Read the head of a caller as far as it has come; return True once that is whole."""
        late_s, head = self._callers[caller]
        try:
            data = head + caller.recv(_MAX_HEAD_BYTES, socket.MSG_PEEK)
            size = self._head(data) or -(len(data) > _MAX_HEAD_BYTES)
            # what follows the head is for others to read
            part = caller.recv(max(0, (size or len(data)) - len(head)))
        except OSError:
            size, part = 0, b""
        self._callers[caller] = late_s, head + part
        if not part:  # it has gone, or is no tool
            self._turn_away(caller, "that began in another way" if size < 0 else "")
        return size > 0

    def _turn_away(self, caller: socket.socket, why: str = "") -> None:
        if self._callers.pop(caller, None) and why:
            self._on_refusal(why)
        caller.close()


def peer_of(connection: socket.socket) -> Tuple[int, int]:
    """Return the process and the user at the other end of a unix socket, by the kernel's word."""
    option = socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
    process, user, _ = _CREDENTIALS.unpack(connection.getsockopt(*option))
    return process, user
