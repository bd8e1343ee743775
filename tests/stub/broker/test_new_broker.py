"""A stub and a new broker: hellos, and answers that are sent again."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.broker.world import TOKEN, F, S
from tests.stub.conftest import Write
from tests.stub.fakes import body, fp32
from tests.stub.running import RunningStub
from tests.support.waiting import eventually
from zmqtriton.broker.service import Hellos
from zmqtriton_floor import wire
from zmqtriton_stub.broker import unconfirmed_answers
from zmqtriton_stub.broker.between_threads import Bell, ThreadOutbox
from zmqtriton_stub.broker.connection import hellos
from zmqtriton_stub.broker.unconfirmed_answers import (
    MAX_BODY_BYTES,
    MAX_BYTES,
    SETTLED_NS,
    UnconfirmedAnswers,
)

pytestmark = pytest.mark.slow


# -------------------------------------------------------------------------- new broker
# A stub's process whose broker dies: what it says to the next one.


#: Functions of a model that wait for something of ours, in threads that execute() joins.
_WAITS = {
    "a call": "call().exec()",
    "a call in an event loop": "asyncio.run(wait_for_call())",
    "a look at the request": "look(requests[0])",
}


@pytest.mark.parametrize("wait", _WAITS)
def test_a_thread_says_hello_while_the_model_waits_for_it(
    stub: RunningStub, tmp_path: Path, write_model: Write, wait: str
) -> None:
    begun = tmp_path / "begun"
    code = f"""
        import asyncio, threading, time
        def call():
            names = dict(model_name="other", inputs=[], requested_output_names=[])
            return pb_utils.InferenceRequest(**names)
        async def wait_for_call():
            await call().async_exec()
        def look(request):
            while not request.is_cancelled():
                time.sleep(0.001)
        class TritonPythonModel:
            def execute(self, requests):
                thread = threading.Thread(target=lambda: {_WAITS[wait]})
                thread.start()
                open("{begun}", "w").close()
                thread.join()
    """
    stub.start(write_model(code))
    [own_id] = stub.send_batches([body(fp32("X"))], batch=5)
    eventually(begun.exists, 30, "an execution")

    for epoch in (2, 3):
        stub.move_broker(epoch)
        hello = stub.welcome_stub()

        assert (hello.received, hello.is_executing) == ([wire.RequestKey(3, own_id)], 1)


# ------------------------------------------------------------------------------ hellos
# The hello of a stub to a new broker, in as many messages as it takes.


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

    assert (hello, [b""] * 100) == _heard(hellos(hello, [b""] * 100))


@pytest.fixture
def kept() -> UnconfirmedAnswers:
    return UnconfirmedAnswers()


# ----------------------------------------------------------------- unconfirmed answers


class Clock:
    now_ns = 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(unconfirmed_answers, "_now_ns", lambda: clock.now_ns)
    return clock


def outcome(own_id: int, text: str = "") -> wire.Outcome:
    return wire.Outcome(3, own_id, 2 if text else 0, text, wire.FINAL)


def test_an_answer_is_forgotten_when_the_broker_has_outlived_it_by_a_second(
    kept: UnconfirmedAnswers, clock: Clock
) -> None:
    kept.add(outcome(1), b"one")
    clock.now_ns = 10
    kept.add(outcome(2), b"two")

    kept.note_message(SETTLED_NS + 10)

    assert kept.recall() == ([outcome(2)], [b"two"])


def test_what_the_next_broker_was_told_stays_until_that_one_has_outlived_it(
    kept: UnconfirmedAnswers, clock: Clock
) -> None:
    kept.add(outcome(1), b"one")
    clock.now_ns = 10 * SETTLED_NS
    kept.recall()

    kept.note_message(10 * SETTLED_NS)
    assert len(kept.kept) == 1
    kept.note_message(11 * SETTLED_NS + 1)
    assert len(kept.kept) == 0


def test_of_a_large_body_only_the_fact_stays(kept: UnconfirmedAnswers, clock: Clock) -> None:
    kept.add(outcome(1), bytes(MAX_BODY_BYTES + 1))
    kept.add(outcome(2), bytes(MAX_BODY_BYTES))

    [lost, whole], bodies = kept.recall()

    assert (lost.id, lost.flags) == (1, wire.FINAL)
    assert (lost.code, lost.text) == (5, "the answer of the model was lost with the broker")
    assert whole == outcome(2)
    assert bodies == [b"", bytes(MAX_BODY_BYTES)]


def test_of_many_bodies_the_newest_stay(kept: UnconfirmedAnswers, clock: Clock) -> None:
    size = MAX_BODY_BYTES
    fitting = MAX_BYTES // size
    for i in range(fitting + 2):
        kept.add(outcome(i), bytes(size))

    outcomes, bodies = kept.recall()

    assert [len(body) for body in bodies] == [0, 0] + [size] * fitting
    assert [o.code != 0 for o in outcomes] == [True, True] + [False] * fitting


def test_forgetting_makes_room_for_bodies_again(kept: UnconfirmedAnswers, clock: Clock) -> None:
    for round_number in range(3):
        clock.now_ns = round_number * 10 * SETTLED_NS
        for i in range(MAX_BYTES // MAX_BODY_BYTES):
            kept.add(outcome(i), bytes(MAX_BODY_BYTES))
        assert all(kept.recall()[1])
        kept.note_message(clock.now_ns + SETTLED_NS + 1)
        assert len(kept.kept) == 0


def test_however_much_was_answered_all_of_it_is_told(
    kept: UnconfirmedAnswers, clock: Clock
) -> None:
    count = 2 * wire.MAX_ROWS
    for i in range(count):
        kept.add(outcome(i, "é" * (60_000 if i % 100 == 0 else 10)), b"")

    outcomes, bodies = kept.recall()

    assert list(range(count)) == [o.id for o in outcomes]
    assert count == len(bodies)
    assert sum(len(o.text.encode()) for o in outcomes) < wire.MAX_HEADER_BYTES
    assert all(o.text for o in outcomes), "of what does not fit the beginning stays"


# ------------------------------------------------------------------------------ outbox


def test_what_is_put_while_sending_is_sent_afterwards() -> None:
    # given
    sent: list[int] = []

    def send(item: int) -> None:
        if item == 1:
            outbox.put(2)
            assert sent == []
        sent.append(item)

    outbox = ThreadOutbox(send)

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

    outbox = ThreadOutbox(send)
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


def test_a_bell_that_is_garbage_first_can_be_rung_by_the_rest_of_it() -> None:
    class Ringer:
        def __init__(self, bell: Bell) -> None:
            self.bell, self.itself = bell, self

        def __del__(self) -> None:
            self.bell.ring()

    first = Bell()  # the collector's order
    ringer = weakref.ref(Ringer(first))

    del first
    gc.collect()

    assert ringer() is None  # an error of a destructor fails the test
