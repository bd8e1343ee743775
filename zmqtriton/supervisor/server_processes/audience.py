"""The broker and the frontends as one audience: they get messages, and confirm them together.

Does no I/O.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from zmqtriton.supervisor.server_processes.acknowledgements import Acknowledgements
from zmqtriton.supervisor.server_processes.introductions import Introductions
from zmqtriton.supervisor.server_processes.peers import Peers
from zmqtriton.supervisor.story import Promise


class Audience:
    def __init__(
        self, introductions: Introductions, acknowledgements: Acknowledgements, peers: Peers
    ) -> None:
        self._introductions = introductions
        self._acknowledgements = acknowledgements
        self._peers = peers

    def serials(self, roles: Container[str]) -> list[int]:
        """Return the processes of some roles that run."""
        return self._peers.serials(roles)

    def tell_broker(self, message: Any) -> None:
        """Send a message to the broker, or else the next one."""
        self._introductions.send_to_broker(message)

    def tell_frontends(self, message: Any) -> None:
        """Send a message to all frontends; later ones get it from `Feature.news`."""
        self._peers.publish(message)

    def send_elsewhere(self) -> None:
        """Let new connections go to other servers that have our ports."""
        self._peers.port_sharing.send_elsewhere()

    def take_back(self) -> None:
        """Let new connections come to this server again."""
        self._peers.port_sharing.take_back()

    def confirm_broker(self) -> Promise[None]:
        """Return a promise that the broker has processed all messages so far."""
        return self._acknowledgements.sync([self._introductions.broker_serial])

    def confirm_frontends(self) -> Promise[None]:
        """Return a promise that is kept when all frontends have confirmed."""
        return self._acknowledgements.sync(self._peers.serving_serials())

    def confirm(self) -> Promise[None]:
        """Return a promise that is kept when the broker and all frontends have confirmed."""
        serials = {self._introductions.broker_serial, *self._peers.serving_serials()}
        return self._acknowledgements.sync(serials - {0})
