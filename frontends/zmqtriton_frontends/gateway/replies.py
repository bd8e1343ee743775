"""Receivers of the reply to a request: an object that goes on with it, or a task that awaits it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol
from weakref import WeakValueDictionary

from zmqtriton_floor.wire import StageTimes
from zmqtriton_frontends.inference.stage_times import Stages


class Reply(Protocol):
    """Called while reading from the broker, so it must not raise."""

    def set_result(self, body: bytes, /) -> None:
        """Take the final response."""

    def set_exception(self, error: Exception, /) -> None:
        """Take the ZmqTritonError in place of a response."""


class AwaitedReply:
    """The reply that a task awaits, unless it was cancelled in this turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, discard: Callable[[bytes], None]) -> None:
        """Set up; `discard` gets a response that nobody awaits any more."""
        self.future: asyncio.Future[bytes] = loop.create_future()
        self._discard = discard

    def set_result(self, body: bytes, /) -> None:
        if self.future.done():
            self._discard(body)
        else:
            self.future.set_result(body)

    def set_exception(self, error: Exception, /) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class StageReceivers:
    """The requests whose stages are told before each reply, for as long as they live."""

    def __init__(self) -> None:
        self._by_id: WeakValueDictionary[int, Stages] = WeakValueDictionary()

    def add(self, own_id: int, stages: Stages) -> None:
        self._by_id[own_id] = stages

    def take(self, times: StageTimes) -> None:
        stages = self._by_id.get(times.id)
        if stages is not None:
            stages.take(times)
