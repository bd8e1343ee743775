"""A request's lifecycle as the parts of the broker see it. Only types.

The parts get it through their constructors, so that none of them has to know the core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from zmqtriton.broker.requests.inflight import InflightRequest
    from zmqtriton_floor import wire
    from zmqtriton_floor.errors import ZmqTritonError


class RequestLifecycle(Protocol):
    def refuse(
        self, request: InflightRequest, error: ZmqTritonError, reason: str, now_ns: int, /
    ) -> None:
        """Answer a request finally with an error of the broker's own."""

    def deliver(
        self, request: InflightRequest, outcome: wire.Outcome, body: bytes, now_ns: int, /
    ) -> None:
        """Hand a finished request's outcome to its maker: a peer or an ensemble."""

    def submit(self, request: InflightRequest, now_ns: int, /) -> None:
        """Admit a request; it is dispatched at the end of the current event."""

    def begin_run(self, request: InflightRequest, now_ns: int, /) -> None:
        """Begin a run of an ensemble that was held."""

    def await_turn(self, request: InflightRequest, /) -> None:
        """Let a queued request be dispatched at the end of the current event, or later."""

    def abandon(
        self, request: InflightRequest, error: ZmqTritonError, reason: str, now_ns: int, /
    ) -> None:
        """Cancel a request; its final answer still comes."""

    def respond(
        self,
        source: int,
        request: InflightRequest,
        outcome: wire.Outcome,
        body: bytes,
        now_ns: int,
        /,
    ) -> None:
        """Pass on a response of a stub, or of an ensemble, whose source is 0."""
