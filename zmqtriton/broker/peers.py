"""The processes that may connect to the broker, as the supervisor has told of them."""

from __future__ import annotations

import hmac

from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton_floor.wire import ExpectPeer, Hello


class Peer:
    def __init__(self, expected: ExpectPeer) -> None:
        self.token = expected.token
        self.role = expected.role
        self.label = expected.label
        #: A stub is ready for work once it is connected and attached, in whichever order.
        self.is_connected = False
        #: When it said hello, it was amid so many batches that an earlier broker had asked for.
        self.executing = 0
        #: How many it executes at once.
        self.concurrency = 1
        #: It is connected where requests come from, and sends those of earlier brokers first.
        self.has_resent = False
        #: Its requests that are unanswered.
        self.requests: dict[int, InflightRequest] = {}

    def arrive(self, hello: Hello) -> None:
        """It is a stub, and has said hello where stubs do."""
        self.is_connected = True
        self.executing, self.concurrency = hello.is_executing, max(1, hello.concurrency)

    def has_token(self, token: bytes) -> bool:
        """Whether this is the one that was announced."""
        return hmac.compare_digest(self.token, token)
