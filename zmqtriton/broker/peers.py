"""The processes that may connect to the broker, as the supervisor has announced them."""

from __future__ import annotations

import hmac

from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton_floor.wire import ExpectPeer, Hello


class Peer:
    def __init__(self, expected: ExpectPeer) -> None:
        self.token = expected.token
        self.role = expected.role
        self.label = expected.label
        #: A stub is ready for work once it is connected and attached, in either order.
        self.is_connected = False
        #: Number of an earlier broker's batches that the stub was executing when it said hello.
        self.executing = 0
        #: Maximum number of batches that the stub executes at the same time.
        self.concurrency = 1
        #: True once the process is connected to the socket for requests. It first repeats requests
        #: of earlier brokers' times there.
        self.has_resent = False
        #: Unanswered requests that this process has made, by its own ids.
        self.requests: dict[int, InflightRequest] = {}

    def arrive(self, hello: Hello) -> None:
        """Record a stub's hello."""
        self.is_connected = True
        self.executing, self.concurrency = hello.is_executing, max(1, hello.concurrency)

    def has_token(self, token: bytes) -> bool:
        """True if the token is the announced one."""
        return hmac.compare_digest(self.token, token)
