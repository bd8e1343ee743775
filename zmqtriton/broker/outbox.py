"""Messages that the core wants sent.

The service takes them at the end of each turn, so that messages to one destination travel together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zmqtriton_floor import wire


class Outbox:
    """Outgoing messages by the serial of their destination, in the order in which they arose."""

    def __init__(self) -> None:
        self.batched_requests: dict[int, list[tuple[wire.BatchedRequest, bytes]]] = {}
        self.cancellations: dict[int, list[wire.RequestKey]] = {}
        self.stream_acks: dict[int, list[wire.StreamAck]] = {}
        #: For owners of memory, on whichever of their connections; leases go before anything else.
        self.leases: dict[int, list[wire.Block]] = {}
        self.releases: dict[int, list[wire.Block]] = {}
        #: Owners to which nobody will report leases of earlier brokers any more.
        self.reported_owners: list[int] = []
        self.replies: dict[int, list[tuple[wire.Reply, bytes]]] = {}
        #: For frontends whose clients want them, before the replies.
        self.stage_times: list[tuple[int, wire.StageTimes]] = []
        #: Messages without bodies to those who asked: Statistics and Waits.
        self.asides: list[tuple[int, Any]] = []
        #: For stubs.
        self.answers: list[tuple[int, wire.CallResult]] = []
        self.supervisor: list[Any] = []
        #: What to do once the replies of this turn, and all before them, have left the process: no
        #: death of the broker loses them any more.
        self.once_delivered: list[Callable[[], object]] = []
        #: For the log.
        self.warnings: list[str] = []

    def cancel_execution(self, serial: int, route: tuple[int, int]) -> None:
        self.cancellations.setdefault(serial, []).append(wire.RequestKey(*route))
