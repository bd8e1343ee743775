"""A receiver of announcements for a test: a thread that takes what is posted.

with Receiver() as receiver:
    Server(directory, options=[f"--announce={receiver.url}"])
    receiver.last
"""

from __future__ import annotations

import json
from typing import Any

from tests.support.receivers.post_receiver import PostReceiver


class Receiver(PostReceiver):
    def __init__(self) -> None:
        super().__init__("/servers")
        self.received: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []

    @property
    def last(self) -> dict[str, Any]:
        """The newest announcement, as a reader judges it; empty before the first."""
        return max(self.received, key=lambda message: float(message["at_s"]), default={})

    def take(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if self.status == 200:
            self.received.append(json.loads(body))
            self.authorizations.append(headers.get("authorization"))
        return self.status, b""
