"""The socket for messages that stubs publish: responses of streams, straight from them.

The stream of a response is not known here. Messages are read in turns, so that many of them do not
keep others waiting.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.errors import ProtocolError

if TYPE_CHECKING:
    from zmqtriton_floor.process.zmq_sockets import Subscriber

#: Seconds within which messages are taken in one turn of the loop. What is made of them takes
#: longer, and waits for turns of its own.
_READ_S = 0.002


class Publishers:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        serial: int,
        directory: str,
        take: Callable[[Any, list[bytes]], None],
    ) -> None:
        """Set up; `take` gets each message with its bodies; raises ProtocolError for others."""
        self._take = take
        self._loop = loop
        self._serial = serial
        self._directory = directory
        self._subscriber: Subscriber | None = None
        #: The stubs that the socket is connected to.
        self._sources: set[int] = set()
        #: The rest of what is there is read in the next turn.
        self._is_due = False
        #: Messages that did not decode or make no sense.
        self.malformed = 0

    def close(self) -> None:
        if self._subscriber is not None:
            self._loop.remove_reader(self._subscriber.descriptor)
            self._subscriber.close()
            self._subscriber = None

    def follow(self, source: int) -> None:
        """Receive the responses that a stub publishes, from now on unless this is done already."""
        if source in self._sources:
            return
        if self._subscriber is None:
            # only now: most frontends have no streams
            from zmqtriton_floor.process.zmq_sockets import Subscriber

            self._subscriber = Subscriber(self._serial)
            self._loop.add_reader(self._subscriber.descriptor, self.read)
        for old in [s for s in self._sources if not self._is_there(s)]:
            self._sources.discard(old)
            self._subscriber.disconnect(endpoints.stream_address(self._directory, old))
        if self._is_there(source):
            self._sources.add(source)
            self._subscriber.connect(endpoints.stream_address(self._directory, source))
            self._loop.call_soon(self.read)  # connecting may have consumed the edge

    def _is_there(self, source: int) -> bool:
        return os.path.exists(endpoints.stream_path(self._directory, source))

    def read(self, until: float | None = None) -> None:
        """Process received messages, as many as the time allows; the others in the next turn."""
        if until is None:
            until = time.monotonic() + _READ_S
        while self._subscriber is not None:
            frames = self._subscriber.take()
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
