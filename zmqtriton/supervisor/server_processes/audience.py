"""The broker and the frontends as one audience: all are told, and all have taken note.

Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zmqtriton.supervisor.server_processes.acknowledgements import Acknowledgements
from zmqtriton.supervisor.server_processes.introductions import Introductions
from zmqtriton.supervisor.server_processes.peers import Peers


class Audience:
    def __init__(
        self, introductions: Introductions, acknowledgements: Acknowledgements, peers: Peers
    ) -> None:
        self._introductions = introductions
        self._acknowledgements = acknowledgements
        self._peers = peers

    def tell_broker(self, message: Any) -> None:
        """Tell the broker, or else the next one."""
        self._introductions.send_to_broker(message)

    def tell_frontends(self, message: Any) -> None:
        """Tell the frontends; later ones hear it from `Feature.news`."""
        self._peers.publish(message)

    def send_elsewhere(self) -> None:
        """Have new connections go to other servers that have our ports."""
        self._peers.port_sharing.send_elsewhere()

    def take_back(self) -> None:
        """Have new connections come to this server, too."""
        self._peers.port_sharing.take_back()

    def confirm_broker(self, then: Callable[[], None]) -> None:
        """Call `then` when the broker has taken note of everything so far."""
        self._acknowledgements.sync([self._introductions.broker_serial], then)

    def confirm_frontends(self, then: Callable[[], None]) -> None:
        """Call `then` when all frontends have."""
        self._acknowledgements.sync(self._peers.serving_serials(), then)

    def confirm(self, then: Callable[[], None]) -> None:
        """Call `then` when the broker and all frontends have taken note of everything so far."""
        serials = {self._introductions.broker_serial, *self._peers.serving_serials()}
        self._acknowledgements.sync(serials - {0}, then)
