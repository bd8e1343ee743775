"""The broker and the frontends: their start, their replacements, and the messages to them.

The broker starts first; frontends wait for it and listen when `opening` says so. Processes that
die are replaced; a broker that dies again and again ends the server. Gunicorn forks its processes
itself: they appear as children of the arbiter. Does no I/O.
"""

from __future__ import annotations

import signal
from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from zmqtriton.roles import (
    ARBITER,
    BROKER,
    CATALOGUE_ROLES,
    CLIENT_FACING_ROLES,
    FORK_SERVER,
    GRPC,
    GUEST,
    HTTP,
    METRICS,
    OPENING_ROLES,
    READINESS_ROLES,
    SERVING_ROLES,
    TELLING,
)
from zmqtriton.supervisor.actions import AdmitGuest, Send, Signal, Spawn
from zmqtriton.supervisor.backoff import MAX_PAUSE_S, PROVEN_AFTER_S, Backoff
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.acknowledgements import Acknowledgements
from zmqtriton.supervisor.server_processes.introductions import Introductions
from zmqtriton.supervisor.server_processes.opening import OPENING_LAST, Opening
from zmqtriton.supervisor.server_processes.port_sharing import PortSharing
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.reasons import Reason

#: Maximum pause before the start of the next broker, in seconds; clients wait during the pause.
BROKER_PAUSE_S = 2.0
#: Seconds without a broker after which the server ends.
NO_BROKER_WITHIN_S = 60.0

#: The roles of processes that answer calls.
ANSWERING_ROLES = {BROKER, METRICS, HTTP, GRPC}

#: Seconds after which a process that has not opened is named in the log and in the status.
OPEN_WITHIN_S = 10.0


@dataclass(eq=False)
class ServerProcess:
    """A process that is neither the supervisor nor a stub."""

    serial: int
    role: str
    pid: int = 0
    started_s: float = 0.0
    is_introduced: bool = False
    #: Pauses between restarts; None for a process that is not replaced when it dies.
    backoff: Backoff | None = None
    #: Time of its start, on the plan's clock.
    alive_since_s: float = 0.0
    restarts: int = 0
    last_death_reason: Reason | None = None
    #: Time when the process has opened, on the plan's clock; None before that.
    opened_s: float | None = None
    #: Time when Listen was sent to it, on the plan's clock; None before, and once it has opened.
    opens_since_s: float | None = None


class NewsOfServer(Protocol):
    """The messages for a new frontend: all that it must know."""

    def of_models(self) -> Iterable[Any]:
        """Return the messages about models and their repository."""

    def of_regions(self) -> Iterable[wire.AddRegion]:
        """Return the messages about clients' shared memory."""


class Peers:
    def __init__(
        self,
        plan: Plan,
        introductions: Introductions,
        acknowledgements: Acknowledgements,
        roles: Iterable[str],
        *,
        news: NewsOfServer,
        has_fork_server: bool = False,
        shares_ports: bool = False,
    ) -> None:
        self._plan = plan
        self._introductions = introductions
        self._acknowledgements = acknowledgements
        self._roles = tuple(roles)
        self._news = news
        self._before = (FORK_SERVER,) if has_fork_server else ()
        self._peers: dict[int, ServerProcess] = {}
        self.opening = Opening(plan, self._roles, self)
        self.port_sharing = PortSharing(plan, is_shared=shares_ports)
        self.opening.completed.at_end(self.port_sharing.begin)
        #: Dead processes whose successors wait for their turn, by serial.
        self._resting: dict[int, ServerProcess] = {}
        #: Deaths of the processes that Gunicorn forks and replaces itself, and the last reason.
        self._worker_deaths, self._worker_reason = Backoff(), ""
        #: Time of the death of the last broker that was ready.
        self._last_broker_s: float | None = None
        #: Frontends tell their clients to go; they end; all other processes end.
        self._is_leaving = self.is_stopping = self._is_finishing = False
        #: True if another server has the sockets, and serves them or will.
        self.has_successor = False
        #: No broker comes up any more.
        self.is_broker_lost = False

    def start(self) -> None:
        for role in (*self._before, BROKER, *self._roles):
            pause_s = BROKER_PAUSE_S if role == BROKER else MAX_PAUSE_S
            self._spawn(ServerProcess(self._plan.new_serial(), role, backoff=Backoff(pause_s)))

    def _spawn(self, peer: ServerProcess) -> None:
        self._peers[peer.serial] = peer
        self._plan.enqueue(Spawn(peer.serial, peer.role))

    def find_peer(self, serial: int) -> ServerProcess | None:
        return self._peers.get(serial)

    def all(self) -> list[ServerProcess]:
        return list(self._peers.values())

    # ------------------------------------------------------------ what happens

    def process_started(self, peer: ServerProcess, pid: int, started_s: float) -> None:
        peer.pid, peer.started_s, peer.alive_since_s = pid, started_s, self._plan.now_s
        if peer.role == BROKER:
            self._introductions.introduce_broker(peer.serial)
            self._plan.enqueue(Send(peer.serial, wire.Sync(0)))
        elif peer.role != FORK_SERVER:
            self._introduce(peer)

    def worker_forked(self, serial: int, pid: int, started_s: float) -> None:
        """Add a process that gunicorn has forked and that serves HTTP."""
        peer = ServerProcess(serial, HTTP, pid, started_s)
        self._peers[serial] = peer
        self._introduce(peer)

    def admit_guest(self, serial: int, call: int) -> None:
        """Let a caller take part as a frontend."""
        if self._is_leaving or self.is_stopping:
            error = Unavailable("the server is stopping: send the call to another one")
            self._plan.enqueue(Send(serial, wire.CallResult(call, error.number, error.text, "")))
        else:
            self._peers[serial] = ServerProcess(serial, GUEST)
            self._plan.enqueue(AdmitGuest(serial))

    def _introduce(self, peer: ServerProcess) -> None:
        # Gunicorn's workers are in the process group of their arbiter and die with it; a guest is
        # not this server's to kill; the announcer tells of the supervisor's death, and then ends.
        group = peer.pid if peer.role not in (HTTP, GUEST, *TELLING) else 0
        self._introductions.introduce(peer.serial, peer.role, peer.role, group).at_end(
            partial(self._send_state, peer)
        )

    def _send_state(self, peer: ServerProcess) -> None:
        peer.is_introduced = True
        if peer.role in CATALOGUE_ROLES:
            self._plan.enqueue(*(Send(peer.serial, news) for news in self._news.of_models()))
        if peer.role in SERVING_ROLES:
            self._plan.enqueue(*(Send(peer.serial, region) for region in self._news.of_regions()))
        if peer.role in READINESS_ROLES and self._is_leaving:
            self._plan.enqueue(Send(peer.serial, wire.Retire(0, 0, int(self.has_successor))))
        if self.opening.has_reached(peer.role):
            self._send_listen(peer)

    def kill(self, peer: ServerProcess, why: str) -> None:
        """Kill a process, or drop a guest; a process of HTTP is killed without its group."""
        verb = "left" if peer.role == GUEST else "killed"
        self._plan.log("E", f"the {peer.role} process {peer.pid} is {verb}: {why}")
        self._plan.enqueue(Signal(peer.serial, int(signal.SIGKILL), group=peer.role != HTTP))

    def process_ended(self, peer: ServerProcess, reason: Reason) -> None:
        del self._peers[peer.serial]
        had_worked = self._has_worked(peer)
        if peer.role == BROKER:
            if self._introductions.is_broker_ready:
                had_worked = True
                self._last_broker_s = self._plan.now_s
            # Processes that wait for it wait for the next one, which is told the same.
            self._introductions.on_broker_ended()
        else:
            self._acknowledgements.peer_ended(peer.serial)
            self._introductions.report_death(peer.serial, reason.text)
        if not self._is_wanted(peer.role):
            return
        self._plan.log("E", f"the {peer.role} process {peer.pid} has died: {reason.text}")
        peer.last_death_reason = reason
        if peer.role == HTTP:
            self._worker_deaths.record_death(self._plan.now_s, had_worked=had_worked)
            self._worker_reason = reason.text
        if peer.backoff is not None:
            peer.backoff.record_death(self._plan.now_s, had_worked=had_worked)
            if peer.role == BROKER and self._is_broker_given_up(peer.backoff):
                self._plan.log("E", "no broker comes up any more; the server ends")
                self.is_broker_lost = True
                return
            self._resting[peer.serial] = peer
            self._plan.call_later(peer.backoff.pause_s, lambda: self._replace(peer, reason))

    def _has_worked(self, peer: ServerProcess) -> bool:
        """True if a process has done its work, so that its start did not fail.

        A process that should have opened and has not has done nothing, even after a long time.
        """
        since_s = peer.opened_s if peer.role in OPENING_ROLES else peer.alive_since_s
        return since_s is not None and self._plan.now_s - since_s >= PROVEN_AFTER_S

    def _is_broker_given_up(self, backoff: Backoff) -> bool:
        """True if no broker has ever come up, or none for a while."""
        if self._last_broker_s is None:
            return backoff.is_exhausted
        return self._plan.now_s - self._last_broker_s > NO_BROKER_WITHIN_S

    def _is_wanted(self, role: str) -> bool:
        """True if the process should be replaced.

        A frontend that ends while the server stops has finished; its work needs the broker.
        """
        if role == GUEST or (role == FORK_SERVER and not self._before):
            return False
        return not (self._is_finishing if role == BROKER else self.is_stopping)

    def _replace(self, dead: ServerProcess, reason: Reason) -> None:
        del self._resting[dead.serial]
        if self._is_wanted(dead.role):
            self._spawn(
                ServerProcess(
                    self._plan.new_serial(),
                    dead.role,
                    backoff=dead.backoff,
                    restarts=dead.restarts + 1,
                    last_death_reason=reason,
                )
            )

    def handle_message(self, peer: ServerProcess, message: Any) -> None:
        match message:
            case wire.Synced() if message.number:
                self._acknowledgements.acknowledge(peer.serial, message.number)
            case wire.Synced() if peer.role == BROKER:
                self._introductions.on_broker_ready()
            case wire.Settled() | wire.LeasedSegments():
                self._introductions.settle(message)
            case wire.CallResult() if peer.role in ANSWERING_ROLES:
                self._plan.answer(message.id, message)
            case wire.LoadFailed() if peer.role == FORK_SERVER:
                self._before = ()
                self._plan.log("V", f"every stub is spawned: {message.reason.text}")
            case wire.Opened():
                self._mark_open(peer)
                self.opening.record(peer.role, message)

    # ------------------------------------------------------------ what is told

    def serving_serials(self) -> list[int]:
        """The serials of the frontends that must confirm a change."""
        return self.serials(SERVING_ROLES)

    def publish(self, message: Any) -> None:
        self._plan.enqueue(*(Send(serial, message) for serial in self.serials(CATALOGUE_ROLES)))

    def serials(self, roles: Container[str]) -> list[int]:
        """Return the processes of some roles that run."""
        return [p.serial for p in self._peers.values() if p.is_introduced and p.role in roles]

    def tell_to_listen(self, *, is_last: bool) -> None:
        """Let the processes listen that open last, or the others."""
        for peer in self._peers.values():
            is_meant = peer.role != BROKER and (peer.role in OPENING_LAST) is is_last
            if peer.is_introduced and is_meant:
                self._send_listen(peer)

    def _send_listen(self, peer: ServerProcess) -> None:
        self._plan.enqueue(Send(peer.serial, wire.Listen()))
        if peer.role in OPENING_ROLES and peer.opened_s is None:  # a local one may be early
            peer.opens_since_s = self._plan.now_s
            self._plan.call_later(OPEN_WITHIN_S, partial(self._report_silence, peer))

    def _mark_open(self, peer: ServerProcess) -> None:
        opened = [peer]
        if peer.role == HTTP:
            opened += [each for each in self._peers.values() if each.role == ARBITER]
        for each in opened:
            each.opens_since_s = None
            if each.opened_s is None:
                each.opened_s = self._plan.now_s

    def _silence(self, peer: ServerProcess) -> str:
        """Return a sentence about a silent process; "" if it may still answer or open in time."""
        if self.is_stopping or not peer.pid:  # a guest is a program of the user's
            return ""
        name = f"the {peer.role} process {peer.pid}"
        since_s = peer.opens_since_s
        took_s = 0.0 if since_s is None else self._plan.now_s - since_s
        if took_s >= OPEN_WITHIN_S:
            return f"{name} has not opened after {took_s:.0f} s"
        took_s = self._acknowledgements.unanswered_s(peer.serial)
        return f"{name} has not answered for {took_s:.0f} s" if took_s >= OPEN_WITHIN_S else ""

    def _report_silence(self, peer: ServerProcess) -> None:
        text = self._silence(peer) if peer.serial in self._peers else ""
        if text:
            self._plan.log("E", text)

    def troubles(self) -> list[dict[str, Any]]:
        """Return a row about each process that does not do its work, with a text for people."""
        rows = [
            {
                "role": peer.role,
                "pid": peer.pid,
                "text": self._deaths(peer) or self._silence(peer),
                "is_silent": not self._deaths(peer),
            }
            for peer in (*self._peers.values(), *self._resting.values())
        ]
        return [row for row in rows if row["text"]]

    def _deaths(self, peer: ServerProcess) -> str:
        """Return a sentence about repeated deaths of a role's processes, or ""."""
        if self.is_stopping or peer.backoff is None:
            return ""
        reason = peer.last_death_reason
        count = 0 if reason is None else peer.backoff.deaths_of_late(self._plan.now_s)
        if count and reason is not None:
            return _describe_deaths(peer.role, count, reason.text)
        count = self._worker_deaths.deaths_of_late(self._plan.now_s)
        return _describe_deaths(HTTP, count, self._worker_reason) if peer.role == ARBITER else ""

    def leave(self) -> None:
        """Let frontends send their clients away: the server stops."""
        self._is_leaving = True
        self.port_sharing.send_elsewhere()
        retirement = wire.Retire(0, 0, int(self.has_successor))
        self._plan.enqueue(*(Send(each, retirement) for each in self.serials(READINESS_ROLES)))

    def stop_frontends(self, within_ms: int) -> None:
        """Let frontends finish their open requests and end."""
        self.is_stopping = True
        for peer in self._peers.values():
            if peer.role in CLIENT_FACING_ROLES or peer.role == GUEST:
                self._stop(peer, within_ms)

    @property
    def has_stopped_frontends(self) -> bool:
        return not any(peer.role in CLIENT_FACING_ROLES for peer in self._peers.values())

    def stop_all(self, within_ms: int) -> None:
        """End the other processes."""
        self.is_stopping = self._is_finishing = True
        for peer in self._peers.values():
            self._stop(peer, within_ms)

    def _stop(self, peer: ServerProcess, within_ms: int) -> None:
        if not peer.is_introduced and peer.role != BROKER:
            # It does not even know who it is and has nothing to finish.
            self._plan.enqueue(Signal(peer.serial, int(signal.SIGKILL), group=True))
        else:
            self._plan.enqueue(Send(peer.serial, wire.Shutdown(within_ms)))
            if peer.role == ARBITER:
                self._plan.enqueue(Signal(peer.serial, int(signal.SIGTERM)))


def _describe_deaths(role: str, count: int, reason: str) -> str:
    text = f"the {role} process dies again and again, {count} times lately; the last time: {reason}"
    return text if count else ""
