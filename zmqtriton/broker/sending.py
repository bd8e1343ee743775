"""Sends what the core has decided: in which order, and what waits to travel with other messages.

Called by the service at the end of each turn, so that messages to one destination travel together.
Knows the routers and the lifeline; decides nothing else.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from zmqtriton.broker.core import Core
from zmqtriton.broker.outbox import Outbox
from zmqtriton.broker.router import Router, split_rows
from zmqtriton_floor import wire
from zmqtriton_floor.lifeline import Lifeline

_log = logging.getLogger(__name__)

#: A serial that no process has.
SUPERVISOR = 0
#: A release waits this long for another message to the same owner, which need not be woken for it.
_RELEASE_WITHIN_NS = 5_000_000


class Sending:
    """Writes to peers.

    `requests` leads to frontends and calling models, `stubs` to those that execute.
    """

    def __init__(self, core: Core, lifeline: Lifeline, requests: Router, stubs: Router) -> None:
        self._core = core
        self._lifeline = lifeline
        self._requests = requests
        self._stubs = stubs
        #: When waiting releases are sent by themselves; 0 if there are none.
        self.release_at_ns = 0

    def flush(self) -> None:
        """Send what the core has decided."""
        outbox = self._core.outbox
        while outbox.warnings:
            _log.warning("%s", outbox.warnings.pop(0))
        while outbox.supervisor:
            self._lifeline.send(outbox.supervisor.pop(0))
        if outbox.leases or outbox.releases or outbox.reported_owners:
            self._flush_blocks(outbox)
        if outbox.batched_requests or outbox.cancellations or outbox.stream_acks or outbox.answers:
            self._flush_stubs(outbox)
        if outbox.replies or outbox.asides:
            self._flush_requests(outbox)
        for router in (self._stubs, self._requests):
            if router.unflushed:
                router.flush()

    def _flush_blocks(self, outbox: Outbox) -> None:
        """Send leases and releases first, so that owners know of them before they write or forget.

        What is for owners that have yet to say hello waits.
        """
        for owner in [owner for owner in outbox.leases if self._can_reach(owner)]:
            self._send_blocks(owner, wire.Lease, outbox.leases.pop(owner))
        now_ns = time.monotonic_ns()
        waiting = due = [owner for owner in outbox.releases if self._can_reach(owner)]
        if not self.release_at_ns or now_ns < self.release_at_ns:
            met = outbox.batched_requests.keys() | outbox.replies.keys()
            due = [owner for owner in waiting if owner in met]
        for owner in due:
            self._send_blocks(owner, wire.Release, outbox.releases.pop(owner))
        if len(due) == len(waiting):
            self.release_at_ns = 0
        elif not self.release_at_ns:
            self.release_at_ns = now_ns + _RELEASE_WITHIN_NS
        settled, outbox.reported_owners = outbox.reported_owners, []
        for owner in settled:
            self._router_to(owner).send(owner, wire.LeasesReported(), [])

    def _router_to(self, owner: int) -> Router:
        """Return the router by which an owner hears of its blocks."""
        peer = self._core.peers.get(owner)
        return self._stubs if peer is not None and peer.role == "stub" else self._requests

    def _can_reach(self, owner: int) -> bool:
        """True if an owner has said hello or is dead; nothing waits for the dead."""
        return owner not in self._core.peers or owner in self._router_to(owner).by_serial

    def _send_blocks(self, owner: int, kind: Any, blocks: list[wire.Block]) -> None:
        for piece in split_rows(blocks):
            self._router_to(owner).send(owner, kind(piece), [])

    def _flush_stubs(self, outbox: Outbox) -> None:
        works, outbox.batched_requests = outbox.batched_requests, {}
        for serial, rows in works.items():
            if self._requests.blocked:
                # a stub must not take this message for a proof that its answers have left
                rows = [
                    (row._replace(flags=row.flags | wire.ANSWERS_WAIT), body) for row, body in rows
                ]
            self._stubs.send_rows(serial, wire.Execute, rows)
        abandons, outbox.cancellations = outbox.cancellations, {}
        for serial, routes in abandons.items():
            for some in split_rows(routes):
                self._stubs.send(serial, wire.CancelExecution(some), [])
        consumed, outbox.stream_acks = outbox.stream_acks, {}
        for serial, allowed in consumed.items():
            for some in split_rows(allowed):
                self._stubs.send(serial, wire.StreamAcks(some), [])
        while outbox.answers:
            self._stubs.send(*outbox.answers.pop(0), [])

    def _flush_requests(self, outbox: Outbox) -> None:
        replies, outbox.replies = outbox.replies, {}
        for serial, answers in replies.items():
            self._requests.send_rows(serial, wire.Replies, answers)
        while outbox.asides:
            serial, answer = outbox.asides.pop(0)
            if serial == SUPERVISOR:
                self._lifeline.send(answer)
            else:
                self._requests.send(serial, answer, [])
