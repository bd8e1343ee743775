"""Streams of responses that a test makes, in place of the gateway's.

    streams = FakeStreams()
    streams.put("id of the request", item(b"first"), final())

A request whose stream has no more items waits for them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from typing import Any

from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.wire import ResponseBody, Tensor
from zmqtriton_frontends.gateway.streams import StreamItem
from zmqtriton_frontends.inference.admission import CheckedRequest

_BYTES = 13


def item(text: bytes, *, is_final: bool = False, **parameters: Any) -> StreamItem:
    """A response with one BYTES tensor of one element."""
    data = len(text).to_bytes(4, "little") + text
    return StreamItem(ResponseBody(parameters, [Tensor("TEXT", _BYTES, [1], data)]), None, is_final)


def failure(error: ZmqTritonError, *, is_final: bool = False) -> StreamItem:
    return StreamItem(None, error, is_final)


def final() -> StreamItem:
    """The end without a response."""
    return StreamItem(None, None, True)


class FakeStreams:
    """By the ids of requests: the items to come, how many were taken, and who closed early."""

    def __init__(self) -> None:
        self._items: dict[str, asyncio.Queue[StreamItem]] = defaultdict(asyncio.Queue)
        self.started: list[str] = []
        self.consumed: dict[str, int] = {}
        self.cancelled: list[str] = []

    def put(self, request_id: str, *items: StreamItem) -> None:
        for one in items:
            self._items[request_id].put_nowait(one)

    async def follow(self, request: CheckedRequest) -> AsyncGenerator[StreamItem, None]:
        request_id = request.body.request_id
        self.started.append(request_id)
        has_ended = False
        try:
            while not has_ended:
                one = await self._items[request_id].get()
                self.consumed[request_id] = self.consumed.get(request_id, 0) + 1
                has_ended = one.is_final
                yield one
        finally:
            if not has_ended:
                self.cancelled.append(request_id)
