"""Sends the core's messages: their order, and the delay of messages that travel with others.

Called by the service at the end of each turn, so that messages to one destination travel together.
Knows the two ROUTERs, with the peers behind their connections, and the lifeline; decides nothing
else.
"""

from __future__ import annotations

import logging
import select
import time
from collections import deque
from collections.abc import Callable, Container
from typing import Any

from zmqtriton.broker.core import BrokerCore
from zmqtriton.broker.outbox import Outbox
from zmqtriton_floor import wire, zmtp
from zmqtriton_floor.lifeline import Lifeline

_log = logging.getLogger(__name__)

#: Serial of the supervisor as a destination; no process has it.
SUPERVISOR = 0
#: Maximum time that a release waits for another message to the same owner, which need not be woken
#: for it.
RELEASE_WITHIN_NS = 5_000_000
#: Empty list of released blocks, shared by all messages that release nothing.
_NOTHING: list[wire.Block] = []
#: Maximum number of replies in one message: a frontend has to receive the whole message before it
#: can look at the first of them.
_MAX_REPLIES = 64


#: A request of a batch, and its body.
_Work = tuple[wire.BatchedRequest, bytes]


class PeerRouter(zmtp.Router):
    """A bound socket and the peers behind its connections."""

    def __init__(self, address: str, epoll: select.epoll) -> None:
        super().__init__(address, epoll)
        self.serials: dict[zmtp.ZmtpConnection, int] = {}
        self.by_serial: dict[int, zmtp.ZmtpConnection] = {}
        #: Known peers whose connections have ended by themselves.
        self._lost: list[int] = []
        #: The connections of peers whose deaths are not known. What was sent there may be lost.
        self._broken: set[zmtp.ZmtpConnection] = set()

    def introduce(self, connection: zmtp.ZmtpConnection, serial: int) -> None:
        self.know(connection)
        self.serials[connection] = serial
        self.by_serial[serial] = connection

    def close(self, connection: zmtp.ZmtpConnection) -> None:
        """End a connection; its messages stay in the inbox."""
        if connection in self.connections and connection in self.serials:
            self._lost.append(self.serials[connection])
            self._broken.add(connection)
            self.has_duties = True
        super().close(connection)

    def take_lost(self) -> list[int]:
        """Return the known peers whose connections have ended since the last call."""
        lost, self._lost = self._lost, []
        return lost

    def disconnect(self, serial: int) -> None:
        connection = self.by_serial.pop(serial, None)
        if connection is not None:
            del self.serials[connection]
            self._broken.discard(connection)
            self.close(connection)

    def undelivered(self) -> set[zmtp.ZmtpConnection]:
        """Return the connections whose living peers may not receive their messages."""
        return self.blocked | self._broken

    def send(self, serial: int, message: Any, bodies: list[bytes]) -> bool:
        """Send a message; False if its peer is gone.

        The supervisor reports the death of such a peer.
        """
        connection = self.by_serial.get(serial)
        return connection is not None and self.write(connection, [wire.encode(message), *bodies])

    def send_list(self, serial: int, kind: Any, rows: list[Any]) -> None:
        """Send messages of this type, whose only field is a list of rows without bodies."""
        connection = self.by_serial.get(serial)
        if connection is not None:
            for i in range(0, len(rows), wire.MAX_ROWS):
                self.write(connection, [wire.encode_rows(kind, rows[i : i + wire.MAX_ROWS])])

    def send_rows(
        self,
        serial: int,
        kind: Any,
        rows: list[tuple[Any, bytes]],
        *before: list[Any],
        max_rows: int = wire.MAX_ROWS,
    ) -> None:
        """Send messages of this type with these rows and their bodies, at most `max_rows` in each.

        The first one has these lists in its other fields.
        """
        connection = self.by_serial.get(serial)
        if connection is None:
            return
        if len(rows) == 1:
            ((row, body),) = rows
            connection.put((wire.encode_rows(kind, [row], *before), body))
            self.unflushed[connection] = None
            return
        for i in range(0, len(rows), max_rows):
            some = rows[i : i + max_rows]
            others = [[] for _ in before] if i else before
            header = wire.encode_rows(kind, [row for row, _ in some], *others)
            self.write(connection, [header, *(body for _, body in some)])

    def read_all_of(self, serial: int) -> None:
        """Read everything that a peer has sent so far, or that a dead peer has ever sent."""
        connection = self.by_serial.get(serial)
        while connection is not None and self.read(connection):
            pass


class PeerSending:
    """Writes to peers.

    `requests` is the router to frontends and calling models, `stubs` to executing ones.
    """

    def __init__(
        self, core: BrokerCore, lifeline: Lifeline, requests: PeerRouter, stubs: PeerRouter
    ) -> None:
        self._outbox = core.outbox
        self._peers = core.peers
        self._lifeline = lifeline
        self._requests = requests
        self._stubs = stubs
        #: Actions that wait until all earlier messages have left, with the connections that still
        #: have such messages to send.
        self._held_up: deque[tuple[list[Callable[[], object]], set[zmtp.ZmtpConnection]]] = deque()
        #: Number of leases that each owner was sent, and the number that each calling stub knows.
        self._leases_sent: dict[int, int] = {}
        self._leases_announced: dict[int, int] = {}
        #: Time when waiting releases are sent without another message; 0 if none waits.
        self.release_at_ns = 0

    def forget(self, serial: int) -> None:
        """Forget a process that has died."""
        self._leases_sent.pop(serial, None)
        self._leases_announced.pop(serial, None)

    def flush(self) -> None:
        """Send the messages of the core."""
        outbox = self._outbox
        if outbox.warnings or outbox.supervisor:
            self._flush_words(outbox)
        if outbox.leases or outbox.reported_owners or outbox.stage_times:
            self._flush_what_precedes(outbox)
        stubs, requests, releases = self._stubs, self._requests, outbox.releases
        batches, outbox.batched_requests = outbox.batched_requests, {}
        for serial, rows in batches.items():
            rows = _with_flag(rows, wire.ANSWERS_WAIT) if requests.blocked else rows
            released = _released_to(serial, releases) if releases else _NOTHING
            stubs.send_rows(serial, wire.Execute, rows, released)
        is_due = releases or self.release_at_ns
        if is_due or outbox.cancellations or outbox.stream_acks or outbox.answers:
            self._flush_what_follows(outbox, batches)
        replies, outbox.replies = outbox.replies, {}
        for serial, rows_of_replies in replies.items():
            requests.send_rows(serial, wire.Replies, rows_of_replies, max_rows=_MAX_REPLIES)
        if outbox.asides:
            self._flush_asides(outbox)
        if stubs.unflushed:
            stubs.flush()
        if requests.unflushed:
            requests.flush()
        if outbox.once_delivered or self._held_up:
            self._act_on_delivery(outbox)

    def flush_some_replies(self) -> None:
        """Send replies during a turn, unless other messages must precede or accompany them."""
        outbox = self._outbox
        if outbox.leases or outbox.releases or outbox.reported_owners or outbox.stage_times:
            return
        replies, outbox.replies = outbox.replies, {}
        for serial, rows in replies.items():
            self._requests.send_rows(serial, wire.Replies, rows)
        try:
            self._requests.flush()
        except OSError as error:
            # The machine is short of something for the moment: the end of the turn goes on.
            _log.error("replies were not sent at once: %s", error)

    def _flush_words(self, outbox: Outbox) -> None:
        """Log warnings, and send messages to the supervisor."""
        while outbox.warnings:
            _log.warning("%s", outbox.warnings.pop(0))
        while outbox.supervisor:
            self._lifeline.send(outbox.supervisor.pop(0))

    def _flush_what_precedes(self, outbox: Outbox) -> None:
        """Send the messages that a process must have before its next batch or reply."""
        if outbox.leases:
            self._flush_leases(outbox)
        if outbox.reported_owners:
            self._flush_releases(outbox, outbox.batched_requests)
        while outbox.reported_owners:
            owner = outbox.reported_owners.pop(0)
            router = self._router_to(owner)
            if router is not None:
                router.send(owner, wire.LeasesReported(), [])
        while outbox.stage_times:
            self._requests.send(*outbox.stage_times.pop(0), [])

    def _act_on_delivery(self, outbox: Outbox) -> None:
        """Do the work that waits until all earlier replies have left this process."""
        if outbox.once_delivered:
            acts, outbox.once_delivered = outbox.once_delivered, []
            self._held_up.append((acts, self._requests.undelivered()))
        while self._held_up:
            acts, connections = self._held_up[0]
            connections &= self._requests.undelivered()
            if connections:
                break
            self._held_up.popleft()
            for act in acts:
                act()
        self._flush_words(outbox)

    def _flush_leases(self, outbox: Outbox) -> None:
        """Send leases before releases and replies, with which their owners may free the blocks.

        Leases for owners that have yet to say hello wait.
        """
        for owner in [*outbox.leases]:
            router, blocks = self._router_to(owner), outbox.leases[owner]
            count = self._leases_sent.get(owner, 0) + len(blocks)
            if router is not self._requests:
                self._announce_leases(owner, count)
            if router is not None:
                self._leases_sent[owner] = count
                router.send_list(owner, wire.Lease, outbox.leases.pop(owner))

    def _announce_leases(self, owner: int, count: int) -> None:
        """Send a stub the number of its leases, on the connection of its replies."""
        is_new = count > self._leases_announced.get(owner, 0)
        if is_new and self._requests.send(owner, wire.LeasesSent(count), []):
            self._leases_announced[owner] = count

    def _flush_releases(self, outbox: Outbox, receivers: Container[int]) -> None:
        """Send releases to owners that get another message anyway, and to all when due."""
        now_ns = time.monotonic_ns()
        is_due, has_waiting = 0 < self.release_at_ns <= now_ns, False
        for owner in [*outbox.releases]:
            router = self._router_to(owner)
            if router is None:
                continue
            if is_due or owner in receivers or owner in outbox.replies:
                router.send_list(owner, wire.Release, outbox.releases.pop(owner))
            else:
                has_waiting = True
        if not has_waiting:
            self.release_at_ns = 0
        elif not self.release_at_ns:
            self.release_at_ns = now_ns + RELEASE_WITHIN_NS

    def _router_to(self, owner: int) -> PeerRouter | None:
        """Return the router for messages to an owner of blocks; None before the owner's hello.

        Messages to a dead process do not wait: any router drops them.
        """
        peer = self._peers.get(owner)
        if peer is None:
            return self._requests
        router = self._stubs if peer.role == "stub" else self._requests
        return router if owner in router.by_serial else None

    def _flush_what_follows(self, outbox: Outbox, batches: Container[int]) -> None:
        """Send the messages between the batches and the replies."""
        if outbox.releases or self.release_at_ns:
            self._flush_releases(outbox, batches)
        abandons, outbox.cancellations = outbox.cancellations, {}
        for serial, routes in abandons.items():
            self._stubs.send_list(serial, wire.CancelExecution, routes)
        consumed, outbox.stream_acks = outbox.stream_acks, {}
        for serial, allowed in consumed.items():
            self._stubs.send_list(serial, wire.StreamAcks, allowed)
        while outbox.answers:
            self._stubs.send(*outbox.answers.pop(0), [])

    def _flush_asides(self, outbox: Outbox) -> None:
        while outbox.asides:
            serial, answer = outbox.asides.pop(0)
            if serial == SUPERVISOR:
                self._lifeline.send(answer)
            else:
                self._requests.send(serial, answer, [])


def _released_to(serial: int, releases: dict[int, list[wire.Block]]) -> list[wire.Block]:
    """Return the blocks for a stub, if they are few enough to travel with its next batch."""
    if len(releases.get(serial, _NOTHING)) > wire.MAX_RELEASED:
        return _NOTHING
    return releases.pop(serial, _NOTHING)


def _with_flag(rows: list[_Work], flag: int) -> list[_Work]:
    """Return batches with a flag.

    With ANSWERS_WAIT a stub does not take them for a proof that its answers have left.
    """
    return [(row._replace(flags=row.flags | flag), body) for row, body in rows]
