"""Limits on how many requests may be unanswered, in the server and in one model, and on their size.

Asked before a request is admitted. The limits that operators set are for clients: what an admitted
request needs of other models is part of it, and is refused only where memory ends. Requests that an
earlier broker admitted are not refused either. Knows neither queues nor clocks.
"""

from __future__ import annotations

from zmqtriton.broker.metrics import statistics
from zmqtriton.broker.requests.token_limits import TokenLimits
from zmqtriton.broker.scheduling.generation import Generation
from zmqtriton_floor.errors import OVERLOADED, Unavailable
from zmqtriton_floor.settings.broker import RequestLimits

#: The limit that holds for everybody; the next request is refused, whoever asks.
MAX_UNANSWERED = 100_000
MAX_UNANSWERED_BYTES = 1 << 30


class Limits:
    def __init__(self) -> None:
        #: The requests that were admitted and not answered, which Lifecycle and Answers count
        #: where they admit and finish them, and the size of their bodies.
        self.unanswered = 0
        self.unanswered_bytes = 0
        #: How many requests were refused here.
        self.refused = 0
        self.tokens = TokenLimits()
        self._max_requests = MAX_UNANSWERED
        self._max_model_requests = 0

    def configure(self, limits: RequestLimits) -> None:
        self._max_requests = min(limits.max_requests or MAX_UNANSWERED, MAX_UNANSWERED)
        self._max_model_requests = limits.max_model_requests

    @property
    def max_requests(self) -> int:
        """Return how many requests may be unanswered in the server."""
        return self._max_requests

    def max_of(self, generation: Generation) -> int:
        """Return how many requests of clients may be unanswered in one model; 0: any number."""
        own = generation.max_requests
        return self._max_model_requests if own is None else own

    @property
    def is_full(self) -> bool:
        """True if no request at all can be taken any more."""
        return self.unanswered >= MAX_UNANSWERED or self.unanswered_bytes >= MAX_UNANSWERED_BYTES

    def is_reached(self, generation: Generation, is_client: bool) -> bool:
        """True if there is no room for one more.

        `is_client` is False for a model that asks and for a request that was admitted before.
        """
        if self.unanswered >= MAX_UNANSWERED or self.unanswered_bytes >= MAX_UNANSWERED_BYTES:
            return True
        if not is_client:
            return False
        limit = generation.max_requests
        if limit is None:  # max_of(), without a call for each request
            limit = self._max_model_requests
        return self.unanswered >= self._max_requests or 0 < limit <= generation.unanswered

    def refuse(self, generation: Generation, now_ns: int) -> Unavailable:
        """Count a request that there is no room for; return its error."""
        self.refused += 1
        limit = self._limit_reached(generation)
        is_own = limit == statistics.MAX_MODEL_REQUESTS and generation.max_requests is not None
        name = "the model's max_requests" if is_own else limit
        generation.statistics.record_rejection(limit, f"{OVERLOADED} ({name})", now_ns)
        return Unavailable(OVERLOADED)

    def _limit_reached(self, generation: Generation) -> str:
        """Return the limit for which one more request has no room."""
        if self.unanswered_bytes >= MAX_UNANSWERED_BYTES:
            return statistics.MEMORY
        if self.unanswered >= self._max_requests:
            return statistics.MAX_REQUESTS
        return statistics.MAX_MODEL_REQUESTS
