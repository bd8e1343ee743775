"""Outgoing messages of the core, collected during a turn.

The service takes the messages at the end of the turn, so that messages to one destination travel
together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zmqtriton_floor import wire


class Outbox:
    """Outgoing messages by the serial number of their destination, oldest first."""

    def __init__(self) -> None:
        self.batched_requests: dict[int, list[tuple[wire.BatchedRequest, bytes]]] = {}
        self.cancellations: dict[int, list[wire.RequestKey]] = {}
        self.stream_acks: dict[int, list[wire.StreamAck]] = {}
        #: Leases and releases of blocks, by the process that owns the blocks. Leases are sent
        #: before all other messages to peers.
        self.leases: dict[int, list[wire.Block]] = {}
        self.releases: dict[int, list[wire.Block]] = {}
        #: Owners that get LeasesReported: this broker now knows all leases of their blocks that
        #: began in earlier brokers' times.
        self.reported_owners: list[int] = []
        self.replies: dict[int, list[tuple[wire.Reply, bytes]]] = {}
        #: Stage times of requests, with the serials of frontends whose clients want them. They are
        #: sent before the replies.
        self.stage_times: list[tuple[int, wire.StageTimes]] = []
        #: Messages without bodies: statistics and Progress for the processes that asked for them,
        #: and WaitReport, the question to a stub.
        self.asides: list[tuple[int, Any]] = []
        #: Results of stubs' calls, with the serials of the stubs.
        self.answers: list[tuple[int, wire.CallResult]] = []
        self.supervisor: list[Any] = []
        #: Actions to perform once the replies of this turn, and all earlier ones, have left the
        #: process. From then on the broker's death cannot lose these replies.
        self.once_delivered: list[Callable[[], object]] = []
        #: Warnings for the log.
        self.warnings: list[str] = []

    def cancel_execution(self, serial: int, route: tuple[int, int]) -> None:
        self.cancellations.setdefault(serial, []).append(wire.RequestKey(*route))
