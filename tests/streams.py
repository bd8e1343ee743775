"""Streams of responses that a test makes, in place of the gateway's.

    streams = FakeStreams()
    streams.put("id of the request", item(b"first"), final())

A request whose stream has no more items waits for them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.wire import ResponseBody, Tensor
from zmqtriton_frontends.kserve import CheckedRequest

_BYTES = 13


class Item(NamedTuple):
    """What a gateway's stream yields."""

    body: ResponseBody | None
    error: ZmqTritonError | None
    is_final: bool


def item(text: bytes, *, is_final: bool = False, **parameters: Any) -> Item:
    """A response with one BYTES tensor of one element."""
    data = len(text).to_bytes(4, "little") + text
    return Item(ResponseBody(parameters, [Tensor("TEXT", _BYTES, [1], data)]), None, is_final)


def failure(error: ZmqTritonError, *, is_final: bool = False) -> Item:
    return Item(None, error, is_final)


def final() -> Item:
    """The end without a response."""
    return Item(None, None, True)


class FakeStreams:
    """By the ids of requests: the items to come, how many were taken, and who closed early."""

    def __init__(self) -> None:
        self._items: dict[str, asyncio.Queue[Item]] = defaultdict(asyncio.Queue)
        self.begun: list[str] = []
        self.taken: dict[str, int] = {}
        self.cancelled: list[str] = []

    def put(self, request_id: str, *items: Item) -> None:
        for one in items:
            self._items[request_id].put_nowait(one)

    async def follow(self, request: CheckedRequest) -> AsyncIterator[Item]:
        request_id = request.body.request_id
        self.begun.append(request_id)
        has_ended = False
        try:
            while not has_ended:
                one = await self._items[request_id].get()
                self.taken[request_id] = self.taken.get(request_id, 0) + 1
                has_ended = one.is_final
                yield one
        finally:
            if not has_ended:
                self.cancelled.append(request_id)
