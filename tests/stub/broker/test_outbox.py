from __future__ import annotations

import threading

import pytest

from zmqtriton_stub.broker.outbox import Outbox

pytestmark = pytest.mark.slow


def test_what_is_put_while_sending_is_sent_afterwards() -> None:
    # given
    sent: list[int] = []

    def send(item: int) -> None:
        if item == 1:
            outbox.put(2)
            assert sent == []
        sent.append(item)

    outbox = Outbox(send)

    # when
    outbox.put(1)

    # then
    assert sent == [1, 2]


def test_nobody_waits_for_one_who_is_sending() -> None:
    # given
    sent: list[int] = []
    is_sending, may_go_on = threading.Event(), threading.Event()

    def send(item: int) -> None:
        is_sending.set()
        may_go_on.wait(10)
        sent.append(item)

    outbox = Outbox(send)
    thread = threading.Thread(target=outbox.put, args=(1,))
    thread.start()
    is_sending.wait(10)

    # when
    outbox.put(2)
    had_been_sent = sent.copy()
    may_go_on.set()
    thread.join()

    # then
    assert had_been_sent == []
    assert sent == [1, 2]
