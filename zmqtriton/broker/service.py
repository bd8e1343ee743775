"""The broker's process: two ROUTERs, the lifeline and the clock around `core.Core`.

One thread, one poll. Whatever arrives in one turn is answered at its end, so that messages to the
same destination travel together. The only file of the broker that knows ZeroMQ.
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

import zmq

from zmqtriton.broker import grants
from zmqtriton.broker.core import Core
from zmqtriton.broker.departures import Departures
from zmqtriton.broker.outbox import Outbox
from zmqtriton.broker.reports import Traffic
from zmqtriton_floor import endpoints, logs, wire
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


class _Router:
    """One bound socket and who is behind its connections."""

    def __init__(self, context: Any, address: str, traffic: Traffic) -> None:
        self.socket = endpoints.open_router(context, address)
        self.traffic = traffic
        self.serials: dict[bytes, int] = {}
        self.identities: dict[int, bytes] = {}
        self.descriptor: int = self.socket.get(zmq.FD)
        #: There may be input: its descriptor said so, or a send may have consumed the edge.
        self.is_due = True

    def introduce(self, identity: bytes, serial: int) -> None:
        self.serials[identity] = serial
        self.identities[serial] = identity

    def forget(self, serial: int) -> None:
        identity = self.identities.pop(serial, None)
        if identity is not None:
            del self.serials[identity]

    def send(self, serial: int, message: Any, bodies: list[bytes]) -> bool:
        """Drops what is for a peer that is gone, False then: the supervisor tells of its death."""
        identity = self.identities.get(serial)
        if identity is None:
            return False
        self.is_due = True
        try:
            frames = [identity, wire.encode(message), *bodies]
            endpoints.send(self.socket, frames)
            self.traffic.sent_bytes += sum(map(len, frames))
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True

    def has_all_of(self, serial: int) -> bool:
        """Whether all that a dead peer has sent is here: libzmq takes nothing for it once it has
        read its connection to the end, and the dead do not mind what they are asked."""
        return not self.send(serial, wire.Abandon([]), [])

    def send_rows(self, serial: int, kind: Any, rows: list[tuple[Any, bytes]]) -> None:
        for some in _cut(rows):
            self.send(serial, kind([row for row, _ in some]), [body for _, body in some])


class Service:
    """Runs until its lifeline ends or the supervisor says Stop."""

    def __init__(self, lifeline: Lifeline) -> None:
        self._lifeline = lifeline
        self._core = Core()
        self._is_over = False
        self._birth = wire.Birth(0, b"", "", "", 0, "{}")
        #: Process groups, to be killed if the supervisor dies without having done it.
        self._groups: dict[int, int] = {}
        self._departures = Departures()
        self._release_at_ns = 0  # when those that wait for company leave without; 0: there are none
        self._requests: _Router
        self._workers: _Router
        self._descriptors = [lifeline.fileno()]
        self._poller = select.poll()
        self._poller.register(lifeline, select.POLLIN)

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
        times = (self._core.next_timer_ns(), self._release_at_ns, self._departures.next_ns)
        timer_ns = min((at_ns for at_ns in times if at_ns), default=None)
        timeout_ms = None
        if timer_ns is not None:
            left_ns = max(0, timer_ns - time.monotonic_ns())
            timeout_ms = left_ns // 1_000_000
            if not timeout_ms:
                # poll() counts in milliseconds, which is much for a batch that waits for others.
                select.select(self._descriptors, (), (), left_ns / 1e9)
        if self._lifeline.is_backed_up:
            self._poller.register(self._lifeline, select.POLLIN | select.POLLOUT)
        for descriptor, _ in self._poller.poll(timeout_ms):
            if descriptor == self._requests.descriptor:
                self._requests.is_due = True
            elif descriptor == self._workers.descriptor:
                self._workers.is_due = True
            else:
                self._lifeline.flush()
                self._poller.register(self._lifeline, select.POLLIN)
                self._read_lifeline()

    def _turn(self) -> None:
        """Everything that is here, and everything that follows from it.

        The sockets' descriptors are edge-triggered, and a send may consume the edge: so what was
        sent through is asked again after the last send, until it has nothing.
        """
        while True:
            if self._departures:
                self._part()  # before the reading: its sends may consume an edge
            took = self._read(self._workers)
            took = self._read(self._requests) or took
            self._core.tick(time.monotonic_ns())
            if not self._flush() and not took:
                return

    # -------------------------------------------------------------- incoming

    def _read(self, router: _Router) -> bool:
        """Takes some messages; False if there was none."""
        for taken in range(_MESSAGES_A_TURN if router.is_due else 0):
            if not endpoints.has_input(router.socket):
                router.is_due = False
                return taken > 0
            frames = endpoints.receive(router.socket)
            router.traffic.received_bytes += sum(map(len, frames))
            try:
                self._take(router, frames)
            except ProtocolError as error:
                self._core.malformed += 1
                _log.debug("dropped a message: %s", error.text)
        return router.is_due

    def _take(self, router: _Router, frames: list[bytes]) -> None:
        if len(frames) < 2:
            raise ProtocolError("a message without a header")
        message = wire.decode(frames[1])
        serial = router.serials.get(frames[0])
        kind = type(message)
        now_ns = time.monotonic_ns()
        if serial is None:
            self._hello(router, frames, message, now_ns)
        elif kind is wire.Infer and router is self._requests:
            self._core.infer(serial, message.requests, frames[2:], now_ns)
        elif kind is wire.Results and router is self._workers:
            self._core.results(serial, message, frames[2:], now_ns)
        elif kind is wire.Cancel and router is self._requests:
            self._core.cancel(serial, message.ids, now_ns)
        else:
            self._take_rarer(router, serial, message, now_ns)

    def _take_rarer(self, router: _Router, serial: int, message: Any, now_ns: int) -> None:
        kind = type(message)
        if kind is wire.Release:
            self._core.blocks.release(serial, message.blocks)
        elif kind is wire.Lease and router is self._workers:
            self._core.blocks.lend(serial, message.blocks, self._requests.send)
        elif kind is wire.Held:
            self._core.recovery.hold(serial, message)
        elif kind is wire.Call and router is self._workers:
            self._core.measures.call(serial, message)
        elif kind is wire.Consumed and router is self._requests:
            grants.pass_on(self._core, serial, message)
        elif kind is wire.Waits and router is self._requests:
            self._core.circles.hear(serial, message, now_ns)
        elif kind is wire.AskStatistics and router is self._requests:
            self._core.ask_statistics(serial, message, time.time_ns() - now_ns, now_ns)
        else:
            raise ProtocolError(f"{kind.__name__} is no message for this socket")

    def _hello(self, router: _Router, frames: list[bytes], message: Any, now_ns: int) -> None:
        if type(message) is not wire.Hello or message.epoch != self._birth.epoch:
            raise ProtocolError("the first message was no Hello of this epoch")
        if message.serial not in self._core.peers:
            self._read_lifeline()  # it may have been announced in this very moment
        self._core.recognise(message)
        if message.serial in router.identities:
            raise ProtocolError(f"Hello: {message.serial} is connected already")
        router.introduce(frames[0], message.serial)
        router.send(message.serial, wire.Welcome(self._birth.epoch), [])
        if router is self._workers:
            self._core.connected(message, frames[2:], now_ns)
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
            if core.part(message.serial):
                self._departures.hold(message, now_ns)
            else:
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
            self._core.ask_statistics(_SUPERVISOR, message, time.time_ns() - time.monotonic_ns())
        else:
            raise ProtocolError(f"{type(message).__name__} is no message for the broker")

    def _be_born(self, birth: wire.Birth) -> None:
        self._birth = birth
        logs.configure(logs.Wanted.of(json.loads(birth.settings)))
        self._core.begin(birth.epoch, birth.settings, time.perf_counter_ns)
        self._core.answers.traces.begin(birth.directory)
        context: Any = zmq.Context.instance()
        where, traffic = (birth.directory, birth.epoch), self._core.traffic
        self._requests = _Router(context, endpoints.requests_address(*where), traffic)
        self._workers = _Router(context, endpoints.workers_address(*where), traffic)
        for router in (self._requests, self._workers):
            self._descriptors.append(router.descriptor)
            self._poller.register(router.descriptor, select.POLLIN)

    def _part(self) -> None:
        """What the dead ones still sent is delivered first."""
        for message in self._departures.take(self._workers.has_all_of, time.monotonic_ns()):
            self._bury(message)

    def _bury(self, message: wire.Gone) -> None:
        self._workers.is_due = True
        while self._read(self._workers):
            pass
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
