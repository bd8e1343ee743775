"""A broker with its sockets and its lifeline, whose turns a test takes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.broker.world import TOKEN, F, S, request
from tests.support.waiting import eventually
from tools import broker_driver
from zmqtriton.broker.service import BrokerService
from zmqtriton_floor import endpoints, logs, wire
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_floor.settings.broker import BrokerSettings
from zmqtriton_floor.settings.codec import encode
from zmqtriton_floor.zmtp import Dealer


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[BrokerService, Lifeline]]:
    """A broker, and its supervisor's end of the lifeline."""
    monkeypatch.setattr(logs, "configure", lambda options: None)
    begun = os.memfd_create("begun")
    os.truncate(begun, 1 << 16)
    ours, theirs = pair()
    supervisor, lifeline = Lifeline(ours), Lifeline(theirs)
    broker = BrokerService(lifeline, begun)
    yield broker, supervisor
    # the end of its process closes these
    for router in (broker._requests, broker._stubs):
        router.close_all()
    broker._epoll.close()
    os.close(broker._supervisor)
    supervisor.close()
    lifeline.close()


def test_requests_that_were_sent_before_a_version_retires_are_answered_by_it(
    tmp_path: Path, broker: tuple[BrokerService, Lifeline]
) -> None:
    service, supervisor = broker
    for message in (
        wire.Bootstrap(9, TOKEN, "broker", str(tmp_path), 1, encode(BrokerSettings())),
        wire.ExpectPeer(F, TOKEN, "http", "http", 0),
        wire.ExpectPeer(S, TOKEN, "stub", "m_0", 0),
        wire.AddGeneration(4, "m", 1, '{"name": "m"}'),
        wire.AttachInstance(4, S, "m_0"),
    ):
        supervisor.send(message)
    # the start of run(), which would go on for ever
    service._read_lifeline()
    with (
        closing(Dealer(endpoints.requests_address(str(tmp_path), 1))) as frontend,
        closing(Dealer(endpoints.stubs_address(str(tmp_path), 1))) as stub,
    ):

        def hear(dealer: Dealer) -> Any:
            def has_heard() -> bool:
                supervisor.send(wire.Sync(1))  # there is something to wake for
                # a turn of run()
                service._wait()
                service._turn()
                frontend.flush()
                stub.flush()
                return dealer.has_input()

            eventually(has_heard, 30)
            return wire.decode(dealer.receive()[0])

        for serial, dealer in ((F, frontend), (S, stub)):
            dealer.put([wire.encode(wire.Hello(serial, TOKEN, 1))])
            assert wire.Welcome(1) == hear(dealer)
        frontend.put([wire.encode(wire.Infer([request(1, 4)])), b"body"])
        frontend.flush()
        supervisor.send(wire.Retire(4))

        # a turn that has looked at the lifeline alone
        service._read_lifeline()
        service._turn()

        assert [(F, 1)] == [(row.peer, row.id) for row in hear(stub).requests]


@pytest.mark.system
def test_the_driver_plays_frontends_and_stubs_to_a_broker() -> None:
    row = broker_driver.Row("batches", frontends=2, stubs=2, clients=4)

    [[figures]] = broker_driver.measure([sys.executable], row, rounds=1, seconds=0.1)

    assert figures.rate > 0
    assert figures.cpu_us > 0
