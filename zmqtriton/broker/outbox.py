"""What the core wants sent; the service takes it at the end of each turn, and so coalesces."""

from __future__ import annotations

from typing import Any

from zmqtriton_floor import wire


class Outbox:
    """By destination's serial, in the order in which it arose."""

    def __init__(self) -> None:
        self.batched_requests: dict[int, list[tuple[wire.BatchedRequest, bytes]]] = {}
        self.cancellations: dict[int, list[wire.RequestKey]] = {}
        self.stream_acks: dict[int, list[wire.StreamAck]] = {}
        #: To the owners, on whichever of their connections; leases go before anything else.
        self.leases: dict[int, list[wire.Block]] = {}
        self.releases: dict[int, list[wire.Block]] = {}
        #: Owners to which nobody will tell of leases from earlier brokers any more.
        self.reported_owners: list[int] = []
        self.replies: dict[int, list[tuple[wire.Reply, bytes]]] = {}
        #: Messages without bodies to who asks: Statistics, and Waits.
        self.asides: list[tuple[int, Any]] = []
        #: To stubs.
        self.answers: list[tuple[int, wire.CallResult]] = []
        self.supervisor: list[Any] = []
        #: To the log.
        self.warnings: list[str] = []

    @property
    def has_blocks(self) -> bool:
        return bool(self.leases or self.releases or self.reported_owners)

    def cancel_execution(self, serial: int, route: tuple[int, int]) -> None:
        self.cancellations.setdefault(serial, []).append(wire.RequestKey(*route))
