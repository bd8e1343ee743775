"""The hello of a stub to a new broker, in as many messages as it takes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.broker.world import TOKEN, BrokerHarness, F, S, request
from zmqtriton.broker.hellos import Hellos
from zmqtriton_floor import wire
from zmqtriton_stub.broker.connection import hellos
from zmqtriton_stub.broker.unconfirmed_answers import UnconfirmedAnswers

pytestmark = pytest.mark.slow

HELLO = wire.Hello(S, TOKEN, 2, is_executing=1, concurrency=2)


class Connection:
    """Stands for one, as broker.hellos tells them apart."""


def _heard(messages: Iterable[list[bytes]]) -> tuple[wire.Hello, list[bytes]]:
    """Put them together, as a broker does."""
    broker, connection = Hellos(), Connection()
    for header, *bodies in messages:
        hello: wire.Hello = wire.decode(header)
        assert len(bodies) == len(hello.unconfirmed)
        whole = broker.join(connection, hello, bodies)
        if whole is not None:
            return whole
    raise AssertionError("the last part is continued")


def _outcomes(count: int, text: str = "") -> list[wire.Outcome]:
    return [wire.Outcome(F, i, 5 if text else 0, text, wire.FINAL) for i in range(count)]


def test_what_fits_is_one_message() -> None:
    hello = HELLO._replace(unconfirmed=_outcomes(wire.MAX_ROWS))
    bodies = [b""] * wire.MAX_ROWS

    [message] = hellos(hello, bodies)

    assert (hello, bodies) == (wire.decode(message[0]), message[1:])


def test_of_more_rows_nothing_is_left_out() -> None:
    count = 3 * wire.MAX_ROWS + 1
    received = [wire.RequestKey(F, count + i) for i in range(wire.MAX_ROWS + 1)]
    hello = HELLO._replace(received=received, unconfirmed=_outcomes(count))
    bodies = [b"%d" % i for i in range(count)]

    messages = hellos(hello, bodies)

    assert (hello, bodies) == _heard(messages)
    flags = [wire.decode(message[0]).is_continued for message in messages]
    assert len(flags) > 3
    assert [1] * (len(flags) - 1) + [0] == flags


def test_rows_that_are_too_long_for_one_header_are_divided() -> None:
    hello = HELLO._replace(unconfirmed=_outcomes(100, "x" * 65_000))

    messages = hellos(hello, [b""] * 100)

    assert (hello, [b""] * 100) == _heard(messages)


def test_what_waits_for_a_slow_reader_is_not_executed_again_by_the_next_broker() -> None:
    """A frontend that is stopped leaves answers unread; a stub goes on for others meanwhile."""
    kept = UnconfirmedAnswers()
    for i in range(2 * wire.MAX_ROWS):
        kept.add(wire.Outcome(F, i, 0, "", wire.FINAL), b"body")
    world = BrokerHarness.serving()
    world.core.expect(wire.ExpectPeer(S, TOKEN, "stub", "m_0", 0))
    world.core.attach(wire.AttachInstance(1, S, "m_0"), world.now)
    world.infer(F, request(0, flags=wire.RESENT))

    outcomes, bodies = kept.recall()
    hello, told = _heard(hellos(HELLO._replace(unconfirmed=outcomes, is_executing=0), bodies))
    world.core.connected(hello, told, world.now)
    world.drain_outbox()

    assert [0] == [reply.code for reply in world.finals(F, 0)]
    assert not world.batched_requests
