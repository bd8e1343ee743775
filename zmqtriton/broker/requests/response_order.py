"""Keeps answers back until the answers to earlier requests are sent: `preserve_ordering`.

`answers` asks for the replies that may leave with each reply. Only clients' requests take part: a
model that calls another one may need the answer before the request that it executes can be
answered.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from zmqtriton_floor.execution_progress import RequestKey
from zmqtriton_floor.wire import FINAL, UNCHECKED, Reply

#: A reply with its body, on its way to a peer.
Addressed = tuple[int, Reply, bytes]


class ResponseOrder:
    """The requests of a generation that are unanswered, or whose answers are kept back."""

    def __init__(self) -> None:
        #: Replies that are kept back, by request, in the order of the requests' arrival.
        self._held_replies: OrderedDict[RequestKey, list[Addressed]] = OrderedDict()

    def add(self, key: RequestKey, flags: int) -> None:
        """Keep the place of a request with these flags."""
        if not flags & UNCHECKED:
            self._held_replies[key] = []

    def pass_on(self, addressed: Addressed) -> list[Addressed]:
        """Add a reply, and return the replies that may leave now."""
        peer, reply, _ = addressed
        kept = self._held_replies.get((peer, reply.id))
        if kept is None:
            return [addressed]
        kept.append(addressed)
        return self._leaving()

    def leave(self, key: RequestKey) -> list[Addressed]:
        """Take a request out of the order; return the replies that may leave now."""
        return self._held_replies.pop(key, []) + self._leaving()

    def _leaving(self) -> list[Addressed]:
        """Return all replies of the first request, and of the next ones if it is finished."""
        leaving: list[Addressed] = []
        while self._held_replies:
            key, kept = next(iter(self._held_replies.items()))
            leaving += kept
            if not kept or not kept[-1][1].flags & FINAL:
                kept.clear()
                break
            del self._held_replies[key]
        return leaving


def order_of(config: dict[str, Any]) -> ResponseOrder | None:
    """Return the order that a configuration requires.

    Streams go straight from stubs to their readers, each at its own pace, so they cannot take part.
    """
    is_asked_for = config.get("dynamic_batching", {}).get("preserve_ordering", False)
    is_decoupled = config.get("model_transaction_policy", {}).get("decoupled", False)
    return ResponseOrder() if is_asked_for and not is_decoupled else None
