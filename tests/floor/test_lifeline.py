"""The lifeline: what a thread sends while it sends arrives, too."""

from __future__ import annotations

import gc
import os
import threading
from typing import Any, cast

from zmqtriton_floor import wire
from zmqtriton_floor.lifeline import Lifeline, pair


class _LastWord:
    """Sends something when the collector destroys it, as an object of a model that logs does."""

    def __init__(self, lifeline: Lifeline) -> None:
        self._lifeline = lifeline
        self._own = self

    def __del__(self) -> None:
        self._lifeline.send(wire.Finalize())


class _Collecting:
    """A descriptor that is asked for amid the sending, where a collection comes."""

    def __init__(self, lifeline: Lifeline, descriptor: int) -> None:
        self._lifeline = lifeline
        self._descriptor = descriptor

    def __index__(self) -> int:
        _LastWord(self._lifeline)
        gc.collect()
        return self._descriptor


def test_what_is_destroyed_while_a_message_is_sent_may_send_one_too() -> None:
    near, far = map(Lifeline, pair())
    descriptor = cast(int, _Collecting(near, near.fileno()))

    # a daemon: it would wait for itself
    sender = threading.Thread(target=near.send, args=(wire.Synced(7), descriptor), daemon=True)
    sender.start()
    received: list[tuple[Any, list[int]]] = []
    while len(received) < 2 and far.wait(20):
        received += far.receive()

    sender.join(20)
    assert not sender.is_alive()
    assert [wire.Finalize(), wire.Synced(7)] == [message for message, _ in received]
    for _, descriptors in received:
        for number in descriptors:
            os.close(number)
    near.close()
    far.close()
