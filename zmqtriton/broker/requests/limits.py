"""Limits on how many requests may be unanswered, in the server and in one model, and on their size.

Asked before a request is admitted. The limits that operators set are for clients: what an admitted
request needs of other models is part of it, and is refused only where memory ends. Requests that an
earlier broker admitted are not refused either. Knows neither queues nor clocks.

The clients of a bearer token have limits of their own: a rate, and a number of unanswered requests.
A frontend sends these before the token's first request, and numbers it. Tokens of the same name
share their limits, whichever frontend their clients ask.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from zmqtriton.broker.metrics import statistics
from zmqtriton.broker.peers import Peer
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.scheduling.generation import BrokerGeneration
from zmqtriton_floor.errors import OVERLOADED, LimitExceeded, ProtocolError, Unavailable
from zmqtriton_floor.settings.broker import RequestLimits
from zmqtriton_floor.wire import RESENT, Call

#: Maximum number of unanswered requests in the server, and of bytes in their bodies. Beyond it the
#: next request is refused, a model's as well as a client's.
MAX_UNANSWERED = 100_000
MAX_UNANSWERED_BYTES = 1 << 30
#: Maximum number of token names. Tokens with further names are counted together, and have no
#: limits.
MAX_TOKENS = 1000
_OTHERS = "other tokens"


class Token:
    """The requests of clients with one token, and their limits."""

    def __init__(self) -> None:
        #: Maximum rate, and maximum number of unanswered requests; 0: no limit.
        self.requests_per_second = 0.0
        self.concurrency = 0
        self.requests = 0
        self.refused = 0
        #: Number of requests that may come at once, which grows with the rate, and the time of that
        #: number.
        self._room = math.inf
        self._at_ns = 0
        #: Requests that may be unanswered: the serials of their frontends and their ids there.
        self._open: list[tuple[int, int]] = []

    def admit(self, key: tuple[int, int], peers: Mapping[int, Peer], now_ns: int) -> None:
        """Count a request. Raises LimitExceeded if there is no room for it."""
        if self.concurrency and len(self._open) >= self.concurrency:
            self._open = [
                (serial, own_id)
                for serial, own_id in self._open
                if serial in peers and own_id in peers[serial].requests
            ]
            if len(self._open) >= self.concurrency:
                self.refused += 1
                count = self.concurrency
                raise LimitExceeded(
                    f"The token may have {count} unanswered request{'s' * (count != 1)}, retry "
                    "after an answer"
                )
        if self.requests_per_second:
            self._take_room(now_ns)
        self.requests += 1
        if self.concurrency:
            self._open.append(key)

    def count_resent(self, key: tuple[int, int]) -> None:
        """Count a request that an earlier broker had admitted."""
        if self.concurrency:
            self._open.append(key)

    def _take_room(self, now_ns: int) -> None:
        rate = self.requests_per_second
        grown = rate * (now_ns - self._at_ns) / 1e9
        self._room, self._at_ns = min(max(1.0, rate), self._room + grown), now_ns
        if self._room < 1:
            self.refused += 1
            wait_s = (1 - self._room) / rate
            raise LimitExceeded(
                f"The token may ask {rate:g} times a second, retry after {wait_s:.3g} s"
            )
        self._room -= 1


class TokenLimits:
    def __init__(self) -> None:
        self._by_name: dict[str, Token] = {}
        #: Tokens by the serial of a frontend, and its number for the token.
        self._by_number: dict[tuple[int, int], Token] = {}

    def take_call(self, serial: int, call: Call) -> None:
        """Record the limits of a token, sent by a frontend. Raises ProtocolError."""
        try:
            arguments = json.loads(call.arguments)
            name, number = str(arguments["name"]), int(arguments["number"])
            rate = float(arguments["requests_per_second"])
            concurrency = int(arguments["concurrency"])
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ProtocolError("Call: malformed limits of a token") from None
        if name not in self._by_name and len(self._by_name) >= MAX_TOKENS:
            name, rate, concurrency = _OTHERS, 0.0, 0
        token = self._by_name.setdefault(name, Token())
        token.requests_per_second, token.concurrency = max(0.0, rate), max(0, concurrency)
        self._by_number[serial, number] = token

    def admit(self, request: InflightRequest, peers: Mapping[int, Peer], now_ns: int) -> None:
        """Count a frontend's request with a token. Raises LimitExceeded."""
        token = self._by_number.get((request.peer, request.caller_id))
        if token is None:
            return  # no frontend sends such a number
        if request.flags & RESENT:
            token.count_resent(request.key)
        else:
            token.admit(request.key, peers, now_ns)

    def forget_peer(self, serial: int) -> None:
        for key in [key for key in self._by_number if key[0] == serial]:
            del self._by_number[key]

    def report(self) -> list[dict[str, Any]]:
        return [
            {"token": name, "requests": token.requests, "refused": token.refused}
            for name, token in self._by_name.items()
        ]


class Limits:
    def __init__(self) -> None:
        #: The requests that were admitted and not answered, which Lifecycle and Answers count
        #: where they admit and finish them, and the size of their bodies.
        self.unanswered = 0
        self.unanswered_bytes = 0
        #: Number of requests that were refused because a limit of the server or of a model was
        #: reached.
        self.refused = 0
        self.tokens = TokenLimits()
        #: Maximum number of unanswered requests in the server.
        self.max_requests = MAX_UNANSWERED
        self._max_model_requests = 0

    def configure(self, limits: RequestLimits) -> None:
        self.max_requests = min(limits.max_requests or MAX_UNANSWERED, MAX_UNANSWERED)
        self._max_model_requests = limits.max_model_requests

    def max_of(self, generation: BrokerGeneration) -> int:
        """Return the maximum number of unanswered client requests in one model; 0: no limit."""
        own = generation.max_requests
        return self._max_model_requests if own is None else own

    @property
    def is_full(self) -> bool:
        """True if no further request can be admitted."""
        return self.unanswered >= MAX_UNANSWERED or self.unanswered_bytes >= MAX_UNANSWERED_BYTES

    def is_reached(self, generation: BrokerGeneration, is_client: bool) -> bool:
        """True if there is no room for one more request.

        `is_client` is False for a model's request and for a request that was admitted before.
        """
        if self.unanswered >= MAX_UNANSWERED or self.unanswered_bytes >= MAX_UNANSWERED_BYTES:
            return True
        if not is_client:
            return False
        limit = generation.max_requests
        if limit is None:  # max_of(), without a call for each request
            limit = self._max_model_requests
        return self.unanswered >= self.max_requests or 0 < limit <= generation.unanswered

    def refuse(self, generation: BrokerGeneration, now_ns: int) -> Unavailable:
        """Count a request that is refused for lack of room; return its error."""
        self.refused += 1
        limit = statistics.MAX_MODEL_REQUESTS
        if self.unanswered >= self.max_requests:
            limit = statistics.MAX_REQUESTS
        if self.unanswered_bytes >= MAX_UNANSWERED_BYTES:
            limit = statistics.MEMORY
        is_own = limit == statistics.MAX_MODEL_REQUESTS and generation.max_requests is not None
        name = "the model's max_requests" if is_own else limit
        generation.statistics.record_rejection(limit, f"{OVERLOADED} ({name})", now_ns)
        return Unavailable(OVERLOADED)
