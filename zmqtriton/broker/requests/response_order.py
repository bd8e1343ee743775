"""Keeps answers back until those to earlier requests are out: `preserve_ordering`.

`answers` asks for each reply what may leave now. Only clients' requests take part: a model that
asks another one may have to hear before the request that it executes can be answered.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from zmqtriton.broker.requests.inflight import InflightRequest, RequestState
from zmqtriton_floor.wire import UNCHECKED, Reply

#: A reply with its body, on its way to a peer.
Addressed = tuple[int, Reply, bytes]


class ResponseOrder:
    """The requests of a generation that are not answered, or whose answers are kept back."""

    def __init__(self) -> None:
        #: As they came, and what is kept back of each.
        self._held_replies: OrderedDict[InflightRequest, list[Addressed]] = OrderedDict()

    def add(self, request: InflightRequest) -> None:
        if not request.row.flags & UNCHECKED:
            self._held_replies[request] = []

    def pass_on(self, request: InflightRequest, reply: Addressed) -> list[Addressed]:
        """What may leave now that there is this reply."""
        kept = self._held_replies.get(request)
        if kept is None:
            return [reply]
        kept.append(reply)
        return self._leaving()

    def leave(self, request: InflightRequest) -> list[Addressed]:
        """Nobody reads its answer any more, so nobody waits for it; returns what may leave now."""
        own = self._held_replies.pop(request, [])
        return own + self._leaving()

    def _leaving(self) -> list[Addressed]:
        """Of the first one all that there is; when that is over, it is the next one's turn."""
        leaving: list[Addressed] = []
        while self._held_replies:
            request, kept = next(iter(self._held_replies.items()))
            leaving += kept
            kept.clear()
            if request.state is not RequestState.ANSWERED:
                break
            del self._held_replies[request]
        return leaving


def order_of(config: dict[str, Any]) -> ResponseOrder | None:
    """The one that a configuration asks for. Streams go straight from stubs to their readers, each
    at its own pace, so they cannot take part."""
    is_asked_for = config.get("dynamic_batching", {}).get("preserve_ordering", False)
    is_decoupled = config.get("model_transaction_policy", {}).get("decoupled", False)
    return ResponseOrder() if is_asked_for and not is_decoupled else None
