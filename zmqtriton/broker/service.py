"""The broker's process: two ROUTERs, the lifeline and the clock around `core.BrokerCore`.

One thread, one poll. The messages of one turn are answered at its end (`sending`), so that messages
to one destination travel together. A hello that is longer than a message comes in parts.
"""

from __future__ import annotations

import gc
import logging
import mmap
import os
import select
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from zmqtriton.broker.core import BrokerCore
from zmqtriton.broker.idle_checks import IdleChecks
from zmqtriton.broker.sending import SUPERVISOR, PeerRouter, PeerSending
from zmqtriton_floor import endpoints, logs, spans, stub_mark, wire, zmtp
from zmqtriton_floor.errors import ProtocolError
from zmqtriton_floor.execution_progress import ProgressView
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_floor.process import named_places, wall_clock
from zmqtriton_floor.process.loop_turns import LoopTurns
from zmqtriton_floor.settings.broker import BrokerSettings
from zmqtriton_floor.settings.codec import decode

_log = logging.getLogger(__name__)

#: Takes a peer's message, by the peer's serial, at a time.
_TakeOfPeer = Callable[[int, Any, int], object]

#: Maximum number of messages that are taken from one socket before the other socket and the replies
#: get their turn.
_MESSAGES_A_TURN = 64
#: Pause after a system call has failed because the machine is short of something.
_SHORTAGE_PAUSE_S = 0.01
#: Maximum time between the end of the lifeline and the visible death of the supervisor, if its
#: death has ended the lifeline.
_DEATH_WITHIN_S = 2.0


class Hellos:
    def __init__(self) -> None:
        #: Received parts of unfinished hellos, by connection. If a connection ends, its peer sends
        #: the whole hello again on the next one.
        self._begun: WeakKeyDictionary[object, tuple[wire.Hello, list[bytes]]] = WeakKeyDictionary()

    def join(
        self, connection: object, part: wire.Hello, bodies: list[bytes]
    ) -> tuple[wire.Hello, list[bytes]] | None:
        """Return the whole hello, and its bodies; None if another part follows."""
        before = self._begun.pop(connection, None)
        if before is not None:
            reported, earlier = before
            part = part._replace(
                received=reported.received + part.received,
                unconfirmed=reported.unconfirmed + part.unconfirmed,
            )
            bodies = earlier + bodies
        if part.is_continued:
            self._begun[connection] = part, bodies
            return None
        return part, bodies


class _OutOfStepError(Exception):
    """Raised if a message of the supervisor cannot be applied: the next broker gets all of them."""


def _open_progress(descriptors: list[int]) -> ProgressView | None:
    """Return the stub's page; None without one: then less is known of the stub if it dies."""
    try:
        return ProgressView(descriptors[0]) if descriptors else None
    except OSError as error:
        _log.warning("a stub's progress page cannot be read: %s", error)
        return None


class BrokerService:
    """Runs until its lifeline ends or the supervisor sends Stop."""

    def __init__(self, lifeline: Lifeline, begun: int) -> None:
        """Set up; `begun` is the descriptor of the memory that outlives the brokers."""
        self._lifeline = lifeline
        self._core = BrokerCore()
        self._core.begun.adopt(mmap.mmap(begun, 0))
        os.close(begun)
        self._is_over = False
        self._bootstrap = wire.Bootstrap(0, b"", "", "", 0, "{}")
        self._settings = BrokerSettings()
        #: Process groups of the server's processes, by serial. The broker kills them if the
        #: supervisor dies without having done it.
        self._groups: dict[int, int] = {}
        #: Retire messages about generations, until the requests that came before them are read.
        self._retirements: list[wire.Retire] = []
        self._turns = LoopTurns()
        self._hellos = Hellos()
        self._requests: PeerRouter
        self._stubs: PeerRouter
        self._sending: PeerSending
        self._idle_checks = IdleChecks(
            self._core.instances,
            lambda serial: self._stubs.send(serial, wire.Sync(0), []),
            self._miss_idle,
        )
        self._epoll = select.epoll()
        self._epoll.register(lifeline, select.EPOLLIN)
        #: Descriptor that shows the supervisor's death.
        self._supervisor = os.pidfd_open(os.getppid())
        self._fill_tables()

    def _fill_tables(self) -> None:
        core = self._core
        of_all: dict[type, _TakeOfPeer] = {
            wire.Release: lambda serial, message, _: core.blocks.release(serial, message.blocks),
            wire.Lease: lambda serial, message, _: core.grant_lease(serial, message),
            wire.HeldBlocks: lambda serial, message, _: core.recovery.take_held_blocks(
                serial, message
            ),
        }
        #: Handlers of the rarer messages of frontends, and of stubs as callers of other models.
        self._of_clients: dict[type, _TakeOfPeer] = {
            **of_all,
            wire.StreamAcks: lambda serial, message, _: core.acknowledge(serial, message),
            wire.WaitReport: core.deadlocks.take_report,
            wire.AskStatistics: self._ask_statistics,
            wire.Call: lambda serial, message, _: core.take_token(serial, message),
        }
        #: Handlers of the rarer messages of stubs as executors.
        self._of_stubs: dict[type, _TakeOfPeer] = {
            **of_all,
            wire.Synced: lambda serial, *_: self._idle_checks.answered(serial),
            wire.Progress: lambda serial, message, _: core.pass_progress(serial, message),
            wire.Call: lambda serial, message, _: core.model_metrics.take_call(serial, message),
        }
        #: Handlers of the supervisor's messages that come without descriptors.
        self._of_supervisor: dict[type, Callable[[Any], object]] = {
            wire.ExpectPeer: self._expect,
            wire.AddGeneration: core.add_generation,
            wire.Retire: self._retire,
            wire.RemoveGeneration: lambda message: core.remove(message, time.monotonic_ns()),
            wire.TrafficSplit: core.generations.divide,
            wire.PeerDied: self._remove_dead_peer,
            wire.LimitsRest: core.rest_limits,
            wire.Sync: self._acknowledge,
            wire.Bootstrap: self._take_bootstrap,
            wire.Shutdown: self._end,
            wire.CallResult: lambda message: core.waiting_for_load.take_result(
                message, time.monotonic_ns()
            ),
            wire.LogSettings: lambda message: logs.change(
                decode(logs.LogOptions, message.settings)
            ),
            wire.AskStatistics: lambda message: self._ask_statistics(
                SUPERVISOR, message, time.monotonic_ns()
            ),
        }

    def run(self) -> int:
        """Run the broker and return its exit status."""
        self._lifeline.wait()
        self._read_lifeline()  # the Bootstrap opens the sockets
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        self._turns.watch()
        while not self._is_over:
            try:
                self._wait()
                self._turn()
            except OSError as error:
                # The machine is short of something for the moment: the next turn goes on.
                _log.error("a turn of the broker was cut short: %s", error)
                time.sleep(_SHORTAGE_PAUSE_S)
            except _OutOfStepError:
                _log.exception("the broker ends, and another one takes over")
                return 1
            if self._lifeline.ended:
                # the kernel closes a dying process's sockets before it shows the death
                if select.select([self._supervisor], [], [], _DEATH_WITHIN_S)[0]:
                    self._end_all()
                return 1
        return 0

    def _wait(self) -> None:
        stubs, requests, turns = self._stubs, self._requests, self._turns
        due_ns, core_ns = self._idle_checks.due_ns, self._core.due_ns
        if core_ns is not None and core_ns < due_ns:
            due_ns = core_ns
        if self._sending.release_at_ns:
            due_ns = min(due_ns, self._sending.release_at_ns)
        if stubs.has_duties or requests.has_duties:
            due_ns = min(due_ns, *(router.next_due_ns() or due_ns for router in (stubs, requests)))
        # as turns.end() and turns.begin() do, without the calls
        now_ns = time.monotonic_ns()
        if now_ns > turns.look_from_ns:
            turns.look_back(now_ns)
        turns.begun_ns = 0
        left_ns = max(0, due_ns - now_ns)
        timeout_s = left_ns // 1_000_000 / 1000
        if not timeout_s:
            # poll() counts in milliseconds, which is long for a batch that waits for others
            select.select((self._epoll,), (), (), left_ns / 1e9)
        if self._lifeline.is_backed_up:
            self._epoll.modify(self._lifeline, select.EPOLLIN | select.EPOLLOUT)
        ready = self._epoll.poll(timeout_s)
        turns.begun_ns = time.monotonic_ns()
        for descriptor, events in ready:
            hear = stubs.hears.get(descriptor) or requests.hears.get(descriptor)
            if hear is not None:
                hear(events)
            else:
                self._lifeline.flush()
                self._epoll.modify(self._lifeline, select.EPOLLIN)
                self._read_lifeline()

    def _turn(self) -> None:
        """Read everything that is here, and act on it."""
        stubs, requests = self._stubs, self._requests
        while True:
            if stubs.inbox:
                self._read(stubs)
            if requests.inbox:
                self._read(requests)
            while self._retirements and not requests.inbox:
                self._core.retire(self._retirements.pop(0))
            now_ns = time.monotonic_ns()
            self._core.tick(now_ns)
            if now_ns >= self._idle_checks.due_ns:
                self._idle_checks.tick(now_ns)
            self._sending.flush()
            if not (stubs.inbox or requests.inbox):
                break
        if stubs.has_duties or requests.has_duties:
            for router in (stubs, requests):
                router.tick(now_ns)
                for serial in router.take_lost():
                    self._report_lost_connection(serial)

    def _report_lost_connection(self, serial: int) -> None:
        """Report an unreachable process to the supervisor, which replaces it unless it is dead."""
        if serial in self._core.peers:
            self._core.stop_giving_to(serial)
            self._lifeline.send(wire.ConnectionLost(serial))

    def _miss_idle(self, serial: int) -> None:
        _log.error("the idle stub %s does not answer its broker", serial)
        self._report_lost_connection(serial)

    # -------------------------------------------------------------- incoming

    def _read(self, router: PeerRouter) -> None:
        """Process some of the received messages."""
        inbox = router.inbox
        for _ in range(min(len(inbox), _MESSAGES_A_TURN)):
            connection, frames = inbox.popleft()
            try:
                message = wire.decode(frames[0])
                serial = router.serials.get(connection)
                kind, now_ns = type(message), time.monotonic_ns()
                if serial is None:
                    self._hello(router, connection, message, frames[1:], now_ns)
                elif kind is wire.Infer and router is self._requests:
                    requests, released = message
                    if released:
                        self._core.blocks.release(serial, released)
                    self._core.infer(serial, requests, frames[1:], now_ns)
                elif kind is wire.Results and router is self._stubs:
                    self._core.results(serial, message, frames[1:], now_ns)
                elif kind is wire.Cancel and router is self._requests:
                    self._core.cancel(serial, message.ids, now_ns)
                else:
                    rarer = self._of_clients if router is self._requests else self._of_stubs
                    if kind not in rarer:
                        raise ProtocolError(f"{kind.__name__} is unexpected on this socket")
                    rarer[kind](serial, message, now_ns)
            except ProtocolError as error:
                self._core.traffic.malformed += 1
                _log.debug("dropped a message: %s", error.text)
            except Exception:  # noqa: BLE001 - the edge: no message may end the broker
                # A defect: its sender begins anew, and everybody else is served on.
                _log.exception("a message could not be handled, and its connection is closed")
                router.close(connection)

    def _ask_statistics(self, serial: int, message: wire.AskStatistics, now_ns: int) -> None:
        core, routers = self._core, (self._requests, self._stubs)
        core.traffic.received_bytes = sum(router.received_bytes for router in routers)
        core.traffic.sent_bytes = sum(router.sent_bytes for router in routers)
        core.traffic.turns = self._turns.document()
        core.ask_statistics(serial, message, wall_clock.offset_ns(), now_ns)

    def _hello(
        self,
        router: PeerRouter,
        connection: zmtp.ZmtpConnection,
        message: Any,
        bodies: list[bytes],
        now_ns: int,
    ) -> None:
        if type(message) is not wire.Hello or message.epoch != self._bootstrap.epoch:
            raise ProtocolError("the first message must be a Hello of the current epoch")
        if message.serial not in self._core.peers:
            self._read_lifeline()  # its peer may have been announced in this very moment
        self._core.authenticate(message)
        if message.serial in router.by_serial:
            raise ProtocolError(f"Hello: {message.serial} is connected already")
        whole = self._hellos.join(connection, message, bodies)
        if whole is None:
            return
        router.introduce(connection, message.serial)
        router.send(message.serial, wire.Welcome(self._bootstrap.epoch), [])
        if router is self._stubs:
            self._core.connected(*whole, now_ns)
        else:
            self._core.peers[message.serial].has_resent = True

    def _read_lifeline(self) -> None:
        for message, descriptors in self._lifeline.receive():
            try:
                self._take_supervisor_message(message, descriptors)
            except ProtocolError as error:
                self._core.traffic.malformed += 1
                _log.warning("dropped a message from the supervisor: %s", error.text)
            except Exception as error:
                raise _OutOfStepError(type(message).__name__) from error
            for descriptor in descriptors:
                os.close(descriptor)

    def _take_supervisor_message(self, message: Any, descriptors: list[int]) -> None:
        kind = type(message)
        if kind is wire.AttachInstance:
            self._core.attach(message, time.monotonic_ns(), _open_progress(descriptors))
        elif kind in self._of_supervisor:
            self._of_supervisor[kind](message)
        else:
            raise ProtocolError(f"{kind.__name__} is unexpected on the lifeline of the broker")

    def _retire(self, message: wire.Retire) -> None:
        """Retire an instance now, but a generation after the requests that are on their way to it.

        Frontends have sent these before they knew of its successor.
        """
        if message.serial:
            self._core.retire(message)
        else:
            for serial in list(self._requests.by_serial):
                self._requests.read_all_of(serial)
            self._retirements.append(message)

    def _expect(self, peer: wire.ExpectPeer) -> None:
        self._core.expect(peer)
        if peer.pid:
            self._groups[peer.serial] = peer.pid

    def _acknowledge(self, sync: wire.Sync) -> None:
        self._core.recovery.await_lease_reports()
        self._sending.flush()
        self._lifeline.send(wire.Synced(sync.number))

    def _end(self, _: wire.Shutdown) -> None:
        self._is_over = True

    def _take_bootstrap(self, bootstrap: wire.Bootstrap) -> None:
        self._bootstrap = bootstrap
        self._settings = decode(BrokerSettings, bootstrap.settings)
        logs.configure(self._settings.log)
        self._core.configure(bootstrap.epoch, self._settings, time.perf_counter_ns)
        self._core.answers.spans = spans.SpanSender(bootstrap.directory)
        where = bootstrap.directory, bootstrap.epoch
        self._requests = PeerRouter(endpoints.requests_address(*where), self._epoll)
        self._stubs = PeerRouter(endpoints.stubs_address(*where), self._epoll)
        self._sending = PeerSending(self._core, self._lifeline, self._requests, self._stubs)
        self._core.on_some_replies = self._sending.flush_some_replies

    def _remove_dead_peer(self, message: wire.PeerDied) -> None:
        """Remove a dead peer after its last messages were delivered."""
        self._core.stop_giving_to(message.serial)
        self._stubs.read_all_of(message.serial)
        while self._stubs.inbox:
            self._read(self._stubs)
        self._core.remove_peer(message, time.monotonic_ns())
        self._groups.pop(message.serial, None)
        self._requests.disconnect(message.serial)
        self._stubs.disconnect(message.serial)
        self._sending.forget(message.serial)

    # ------------------------------------------------------------------- end

    def _end_all(self) -> None:
        """End all processes after the supervisor's death: nothing of the server may outlive it."""
        for pid in self._groups.values():
            with suppress(ProcessLookupError):  # PDEATHSIG was faster
                os.killpg(pid, signal.SIGKILL)
        for pid in stub_mark.marked_processes(self._bootstrap.directory):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for directory in (self._bootstrap.directory, self._settings.storage_directory):
            shutil.rmtree(directory, ignore_errors=True)
        if named := self._settings.named_directory:
            with suppress(OSError):
                named_places.leave(Path(named))
