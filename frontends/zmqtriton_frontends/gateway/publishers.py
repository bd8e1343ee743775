"""The socket for what stubs publish: responses of streams, straight from them.

Which stream a response belongs to is not known here. What comes is taken in turns, so that others
are not kept waiting for all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Callable
from typing import Any

import zmq

from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.errors import ProtocolError
from zmqtriton_frontends.process.turns import ROUND_S


class Publishers:
    def __init__(self, take: Callable[[Any, list[bytes]], None]) -> None:
        """Set up; `take` gets each message and its bodies, and raises ProtocolError for others."""
        self._take = take
        self._loop: asyncio.AbstractEventLoop
        self._serial = 0
        self._directory = ""
        self._socket: Any = None
        #: The stubs that the socket is connected to.
        self._sources: set[int] = set()
        #: The rest of what is there is read in the next turn.
        self._is_due = False
        #: Messages that did not decode or make no sense.
        self.malformed = 0

    def begin(self, loop: asyncio.AbstractEventLoop, serial: int, directory: str) -> None:
        self._loop, self._serial, self._directory = loop, serial, directory

    def close(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket.get(zmq.FD))
            self._socket.close(0)
            self._socket = None

    def follow(self, source: int) -> None:
        """Take what a stub publishes from now on, if that is not done already."""
        if source in self._sources:
            return
        if self._socket is None:
            self._socket = endpoints.open_subscriber(zmq.Context.instance(), self._serial)
            self._loop.add_reader(self._socket.get(zmq.FD), self.read)
        for old in [s for s in self._sources if not self._is_there(s)]:
            self._sources.discard(old)
            # libzmq may have forgotten it by itself
            with contextlib.suppress(zmq.ZMQError):
                self._socket.disconnect(endpoints.stream_address(self._directory, old))
        if self._is_there(source):
            self._sources.add(source)
            self._socket.connect(endpoints.stream_address(self._directory, source))
            self._loop.call_soon(self.read)  # connecting may have consumed the edge

    def _is_there(self, source: int) -> bool:
        return os.path.exists(endpoints.stream_path(self._directory, source))

    def read(self) -> None:
        """Take the messages here, as many as the time allows; the others in the next turn."""
        self._read(time.monotonic() + ROUND_S)

    def read_all(self) -> None:
        """Take all that is here."""
        self._read(math.inf)

    def _read(self, until: float) -> None:
        socket = self._socket
        while socket is not None:
            frames = endpoints.take(socket)
            if frames is None:
                return
            try:
                # the topic is part of the frame, since each frame costs
                self._take(wire.decode(frames[0][endpoints.TOPIC_BYTES :]), frames[1:])
            except ProtocolError:
                self.malformed += 1
            if time.monotonic() > until:
                if not self._is_due:
                    self._is_due = True
                    self._loop.call_soon(self._read_on)
                return

    def _read_on(self) -> None:
        self._is_due = False
        self.read()
