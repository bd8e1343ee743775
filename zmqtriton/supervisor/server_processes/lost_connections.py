"""Connections to the broker that have ended between living processes.

A stub is killed and replaced, which takes milliseconds. A frontend has clients, so the broker is
replaced instead: everybody connects to the next one and repeats what is unanswered. Does no I/O.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial

from zmqtriton.supervisor import states
from zmqtriton.supervisor.actions import Signal
from zmqtriton.supervisor.models.instance import Instance
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.introductions import Introductions
from zmqtriton.supervisor.server_processes.peers import Peers
from zmqtriton.supervisor.states import InstanceState
from zmqtriton_floor.reasons import Kind, Reason

#: A dying process closes its connections before its death is seen.
_DEATH_WITHIN_S = 0.2
#: A stub in another state has closed the connection itself, or is about to end.
_CONNECTED_STATES = frozenset({InstanceState.LOADING, InstanceState.READY, InstanceState.DRAINING})


class LostConnections:
    def __init__(
        self,
        plan: Plan,
        peers: Peers,
        introductions: Introductions,
        find_instance: Callable[[int], Instance | None],
        tell_stub: Callable[[int, states.Event], None],
        confirm_broker: Callable[[Callable[[], None]], None],
    ) -> None:
        self._plan = plan
        self._peers = peers
        self._introductions = introductions
        self._find_instance = find_instance
        self._tell_stub = tell_stub
        self._confirm_broker = confirm_broker

    def on_lost(self, serial: int) -> None:
        """The broker has lost its connection to this process."""
        broker = self._introductions.broker_serial
        replace = partial(self._replace, serial, broker)
        # A busy supervisor sees the time before the death; by the broker's answer it has seen both.
        self._plan.call_later(_DEATH_WITHIN_S, lambda: self._confirm_broker(replace))

    def _replace(self, serial: int, broker: int) -> None:
        if broker != self._introductions.broker_serial:
            return
        instance = self._find_instance(serial)
        if instance is not None and instance.state in _CONNECTED_STATES:
            text = "its connection to the broker has ended"
            reason = Reason.of(Kind.CONNECTION_LOST, text)
            about = f"stub {instance.name} is killed: {text}"
            self._plan.log("E", about, model=instance.model, version=instance.version)
            self._tell_stub(serial, states.KillRequested(reason))
        peer = self._peers.find_peer(serial)
        if peer is not None and self._peers.find_peer(broker) and not self._peers.is_stopping:
            text = f"the connection to the {peer.role} process {peer.pid} has ended"
            self._plan.log("E", f"the broker is replaced: {text}")
            self._plan.enqueue(Signal(broker, int(signal.SIGKILL), group=True))
