"""The broker's process: two ROUTERs, the lifeline and the clock around `core.Core`.

One thread, one poll. Whatever arrives in one turn is answered at its end, so that messages to the
same destination travel together. The only file of the broker that knows sockets.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import select
import shutil
import signal
import time
from contextlib import suppress
from typing import Any

from zmqtriton.broker import grants
from zmqtriton.broker.core import Core
from zmqtriton.broker.outbox import Outbox
from zmqtriton_floor import endpoints, logs, wall_clock, wire, zmtp
from zmqtriton_floor.errors import ProtocolError
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_floor.progress import Progress

_log = logging.getLogger(__name__)

#: A serial number that no process has.
_SUPERVISOR = 0
#: Messages taken from one socket before the other one and the answers get their turn.
_MESSAGES_A_TURN = 64
#: A release waits so long for a message that goes to the same owner anyway, and need not wake it.
_RELEASE_WITHIN_NS = 5_000_000


def _cut(rows: list[Any]) -> list[list[Any]]:
    """In pieces of what one header may carry."""
    if len(rows) <= wire.MAX_ROWS:
        return [rows]
    return [rows[i : i + wire.MAX_ROWS] for i in range(0, len(rows), wire.MAX_ROWS)]


class _Router(zmtp.Router):
    """One bound socket and who is behind its connections."""

    def __init__(self, address: str, epoll: select.epoll) -> None:
        super().__init__(address, epoll)
        self.serials: dict[zmtp.Connection, int] = {}
        self.identities: dict[int, zmtp.Connection] = {}

    def introduce(self, connection: zmtp.Connection, serial: int) -> None:
        self.know(connection)
        self.serials[connection] = serial
        self.identities[serial] = connection

    def forget(self, serial: int) -> None:
        connection = self.identities.pop(serial, None)
        if connection is not None:
            del self.serials[connection]
            self.close(connection)

    def send(self, serial: int, message: Any, bodies: list[bytes]) -> bool:
        """Drops what is for a peer that is gone, False then: the supervisor tells of its death."""
        connection = self.identities.get(serial)
        return connection is not None and self.write(connection, [wire.encode(message), *bodies])

    def send_rows(self, serial: int, kind: Any, rows: list[tuple[Any, bytes]]) -> None:
        for some in _cut(rows):
            self.send(serial, kind([row for row, _ in some]), [body for _, body in some])

    def read_all_of(self, serial: int) -> None:
        """What a dead peer has sent, which is all here."""
        connection = self.identities.get(serial)
        while connection is not None and self.read(connection):
            pass


class Service:
    """Runs until its lifeline ends or the supervisor says Stop."""

    def __init__(self, lifeline: Lifeline) -> None:
        self._lifeline = lifeline
        self._core = Core()
        self._is_over = False
        self._birth = wire.Birth(0, b"", "", "", 0, "{}")
        #: Process groups, to be killed if the supervisor dies without having done it.
        self._groups: dict[int, int] = {}
        self._release_at_ns = 0  # when those that wait for company leave without; 0: there are none
        self._requests: _Router
        self._workers: _Router
        self._epoll = select.epoll()
        self._epoll.register(lifeline, select.EPOLLIN)

    def run(self) -> int:
        """The exit status."""
        self._lifeline.wait()
        self._read_lifeline()  # the Birth opens the sockets
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        while not self._is_over:
            self._wait()
            self._turn()
            if self._lifeline.ended:
                self._end_all()
                return 1
        return 0

    def _wait(self) -> None:
        times = (self._core.next_timer_ns(), self._release_at_ns)
        timer_ns = min((at_ns for at_ns in times if at_ns), default=None)
        timeout_s = -1.0
        if timer_ns is not None:
            left_ns = max(0, timer_ns - time.monotonic_ns())
            timeout_s = left_ns // 1_000_000 / 1000
            if not timeout_s:
                # poll() counts in milliseconds, which is much for a batch that waits for others.
                select.select((self._epoll,), (), (), left_ns / 1e9)
        if self._lifeline.is_backed_up:
            self._epoll.modify(self._lifeline, select.EPOLLIN | select.EPOLLOUT)
        for descriptor, events in self._epoll.poll(timeout_s):
            for router in (self._workers, self._requests):
                hear = router.hears.get(descriptor)
                if hear is not None:
                    hear(events)
                    break
            else:
                self._lifeline.flush()
                self._epoll.modify(self._lifeline, select.EPOLLIN)
                self._read_lifeline()

    def _turn(self) -> None:
        """Everything that is here, and everything that follows from it."""
        while True:
            self._read(self._workers)
            self._read(self._requests)
            self._core.tick(time.monotonic_ns())
            self._flush()
            if not (self._workers.inbox or self._requests.inbox):
                return

    # -------------------------------------------------------------- incoming

    def _read(self, router: _Router) -> None:
        """Takes some messages of those that have come."""
        inbox = router.inbox
        for _ in range(min(len(inbox), _MESSAGES_A_TURN)):
            connection, frames = inbox.popleft()
            try:
                self._take(router, connection, frames)
            except ProtocolError as error:
                self._core.malformed += 1
                _log.debug("dropped a message: %s", error.text)

    def _take(self, router: _Router, connection: zmtp.Connection, frames: list[bytes]) -> None:
        message = wire.decode(frames[0])
        serial = router.serials.get(connection)
        kind = type(message)
        now_ns = time.monotonic_ns()
        if serial is None:
            self._hello(router, connection, message, frames[1:], now_ns)
        elif kind is wire.Infer and router is self._requests:
            self._core.infer(serial, message.requests, frames[1:], now_ns)
        elif kind is wire.Results and router is self._workers:
            self._core.results(serial, message, frames[1:], now_ns)
        elif kind is wire.Cancel and router is self._requests:
            self._core.cancel(serial, message.ids, now_ns)
        else:
            self._take_rarer(router, serial, message, now_ns)

    def _take_rarer(self, router: _Router, serial: int, message: Any, now_ns: int) -> None:
        kind = type(message)
        if kind is wire.Release:
            self._core.blocks.release(serial, message.blocks)
        elif kind is wire.Lease and (instance := self._core.instances.get(serial)):
            self._core.blocks.lend(instance, message.blocks, self._requests.send)
        elif kind is wire.Held:
            self._core.recovery.hold(serial, message)
        elif kind is wire.Call and router is self._workers:
            self._core.measures.call(serial, message)
        elif kind is wire.Consumed and router is self._requests:
            grants.pass_on(self._core, serial, message)
        elif kind is wire.Waits and router is self._requests:
            self._core.circles.hear(serial, message, now_ns)
        elif kind is wire.AskStatistics and router is self._requests:
            self._ask_statistics(serial, message, now_ns)
        else:
            raise ProtocolError(f"{kind.__name__} is no message for this socket")

    def _ask_statistics(self, serial: int, message: wire.AskStatistics, *now_ns: int) -> None:
        core, routers = self._core, (self._requests, self._workers)
        core.traffic.received_bytes = sum(router.received_bytes for router in routers)
        core.traffic.sent_bytes = sum(router.sent_bytes for router in routers)
        core.ask_statistics(serial, message, wall_clock.offset_ns(), *now_ns)

    def _hello(
        self,
        router: _Router,
        connection: zmtp.Connection,
        message: Any,
        bodies: list[bytes],
        now_ns: int,
    ) -> None:
        if type(message) is not wire.Hello or message.epoch != self._birth.epoch:
            raise ProtocolError("the first message was no Hello of this epoch")
        if message.serial not in self._core.peers:
            self._read_lifeline()  # it may have been announced in this very moment
        self._core.recognise(message)
        if message.serial in router.identities:
            raise ProtocolError(f"Hello: {message.serial} is connected already")
        router.introduce(connection, message.serial)
        router.send(message.serial, wire.Welcome(self._birth.epoch), [])
        if router is self._workers:
            self._core.connected(message, bodies, now_ns)
        else:
            self._core.peers[message.serial].has_asked_again = True

    def _read_lifeline(self) -> None:
        for message, descriptors in self._lifeline.receive():
            try:
                self._hear(message, descriptors)
            except ProtocolError as error:
                self._core.malformed += 1
                _log.warning("dropped a message of the supervisor: %s", error.text)
            for descriptor in descriptors:
                os.close(descriptor)

    def _hear(self, message: Any, descriptors: list[int]) -> None:
        core, now_ns = self._core, time.monotonic_ns()
        kind = type(message)
        if kind is wire.Expect:
            core.expect(message)
            if message.pid:
                self._groups[message.serial] = message.pid
        elif kind is wire.Serve:
            core.serve(message)
        elif kind is wire.Attach:
            core.attach(message, now_ns, Progress(descriptors[0]) if descriptors else None)
        elif kind is wire.Retire:
            core.retire(message)
        elif kind is wire.Remove:
            core.remove(message, now_ns)
        elif kind is wire.Gone:
            self._bury(message)
        elif kind is wire.Sync:
            core.recovery.begin()
            self._flush()
            self._lifeline.send(wire.Seen(message.number))
        else:
            self._hear_of_itself(message)

    def _hear_of_itself(self, message: Any) -> None:
        if type(message) is wire.Birth:
            self._be_born(message)
        elif type(message) is wire.Stop:
            self._is_over = True
        elif type(message) is wire.Answer:
            self._core.demands.hear(message, time.monotonic_ns())
        elif type(message) is wire.Logging:
            logs.change(logs.Wanted.of(json.loads(message.settings)))
        elif type(message) is wire.AskStatistics:
            self._ask_statistics(_SUPERVISOR, message)
        else:
            raise ProtocolError(f"{type(message).__name__} is no message for the broker")

    def _be_born(self, birth: wire.Birth) -> None:
        self._birth = birth
        logs.configure(logs.Wanted.of(json.loads(birth.settings)))
        self._core.begin(birth.epoch, birth.settings, time.perf_counter_ns)
        self._core.answers.traces.begin(birth.directory)
        where = birth.directory, birth.epoch
        self._requests = _Router(endpoints.requests_address(*where), self._epoll)
        self._workers = _Router(endpoints.workers_address(*where), self._epoll)

    def _bury(self, message: wire.Gone) -> None:
        """What the dead one still sent is delivered first."""
        self._core.part(message.serial)
        self._workers.read_all_of(message.serial)
        while self._workers.inbox:
            self._read(self._workers)
        self._core.gone(message, time.monotonic_ns())
        self._groups.pop(message.serial, None)
        self._requests.forget(message.serial)
        self._workers.forget(message.serial)

    # -------------------------------------------------------------- outgoing

    def _flush(self) -> bool:
        """Sends what the core decided; False if that was nothing for the sockets."""
        outbox = self._core.outbox
        while outbox.warnings:
            _log.warning("%s", outbox.warnings.pop(0))
        while outbox.supervisor:
            self._lifeline.send(outbox.supervisor.pop(0))
        has_blocks = outbox.has_blocks and self._flush_blocks(outbox)
        has_work = bool(outbox.works or outbox.abandons or outbox.grants or outbox.answers)
        if has_work:
            self._flush_workers(outbox)
        has_replies = bool(outbox.replies or outbox.asides)
        if has_replies:
            self._flush_requests(outbox)
        return has_blocks or has_work or has_replies

    def _flush_blocks(self, outbox: Outbox) -> bool:
        """Before anything else, so that who is to write or to forget knows it; whether any went.
        What is for owners that have yet to say hello waits."""
        for owner in (leases := [owner for owner in outbox.leases if self._can_reach(owner)]):
            self._send_blocks(owner, wire.Lease, outbox.leases.pop(owner))
        now_ns = time.monotonic_ns()
        waiting = due = [owner for owner in outbox.releases if self._can_reach(owner)]
        if not self._release_at_ns or now_ns < self._release_at_ns:
            met = outbox.works.keys() | outbox.replies.keys()
            due = [owner for owner in waiting if owner in met]
        for owner in due:
            self._send_blocks(owner, wire.Release, outbox.releases.pop(owner))
        if len(due) == len(waiting):
            self._release_at_ns = 0
        elif not self._release_at_ns:
            self._release_at_ns = now_ns + _RELEASE_WITHIN_NS
        settled, outbox.settled = outbox.settled, []
        for owner in settled:
            self._router_to(owner).send(owner, wire.Settled(), [])
        return bool(leases or due or settled)

    def _router_to(self, owner: int) -> _Router:
        """Where it hears of its blocks."""
        peer = self._core.peers.get(owner)
        return self._workers if peer is not None and peer.role == "stub" else self._requests

    def _can_reach(self, owner: int) -> bool:
        """Whether it has said hello; what is for the dead need not wait either."""
        return owner not in self._core.peers or owner in self._router_to(owner).identities

    def _send_blocks(self, owner: int, kind: Any, blocks: list[wire.Block]) -> None:
        for piece in _cut(blocks):
            self._router_to(owner).send(owner, kind(piece), [])

    def _flush_workers(self, outbox: Outbox) -> None:
        works, outbox.works = outbox.works, {}
        for serial, rows in works.items():
            self._workers.send_rows(serial, wire.Execute, rows)
        abandons, outbox.abandons = outbox.abandons, {}
        for serial, routes in abandons.items():
            for some in _cut(routes):
                self._workers.send(serial, wire.Abandon(some), [])
        consumed, outbox.grants = outbox.grants, {}
        for serial, allowed in consumed.items():
            for some in _cut(allowed):
                self._workers.send(serial, wire.Consumed(some), [])
        while outbox.answers:
            self._workers.send(*outbox.answers.pop(0), [])

    def _flush_requests(self, outbox: Outbox) -> None:
        replies, outbox.replies = outbox.replies, {}
        for serial, answers in replies.items():
            self._requests.send_rows(serial, wire.Replies, answers)
        while outbox.asides:
            serial, answer = outbox.asides.pop(0)
            if serial == _SUPERVISOR:
                self._lifeline.send(answer)
            else:
                self._requests.send(serial, answer, [])

    # ------------------------------------------------------------------- end

    def _end_all(self) -> None:
        """The supervisor is dead: nothing of the server may outlive it."""
        for pid in self._groups.values():
            with suppress(ProcessLookupError):  # PDEATHSIG was faster
                os.killpg(pid, signal.SIGKILL)
        settings = json.loads(self._birth.settings)
        for directory in (self._birth.directory, settings.get("storage_directory", "")):
            shutil.rmtree(directory, ignore_errors=True)
