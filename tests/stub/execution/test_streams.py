"""Streams without sockets, and the publisher with a subscriber."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import zmq

from tests.stub.fakes import FakeLink, body
from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.process import zmq_sockets
from zmqtriton_floor.wire import FINAL, STREAM_WINDOW
from zmqtriton_stub.api import inference, pb_utils
from zmqtriton_stub.execution import streams
from zmqtriton_stub.execution.responses import InferenceResponseSender, OpenRequest
from zmqtriton_stub.execution.streams import MAX_BUFFERED, OpenStream, Publisher, coalesce
from zmqtriton_stub.memory.tensor_memory import ClientMemory

pytestmark = pytest.mark.slow

CONFIG = {"name": "m", "model_transaction_policy": {"decoupled": True}}
PEER = 3
UNAVAILABLE, CANCELLED = 5, 8
TOO_SLOW = "the reader of this stream did not keep up"


def response(size: int = 1) -> pb_utils.InferenceResponse:
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(size, np.uint8))])


class World:
    """One stream and what has left of it."""

    def __init__(self, flags: int = 0, memory: Any = None) -> None:
        self.link = FakeLink(is_decoupled=True)
        self.link.instance.memory = memory
        self.stream: Any = self.link.add_request(body(), flags=flags)
        assert type(self.stream) is OpenStream
        self.sender: InferenceResponseSender = self.stream.make_sender()

    def send(self, count: int) -> None:
        for _ in range(count):
            self.sender.send(response())

    @property
    def numbers(self) -> list[int]:
        return [outcome.number for outcome in self.link.outcomes()]

    @property
    def end(self) -> tuple[int, int, str]:
        """The number, code and text of the final outcome, which is the only one and the last."""
        finals = [outcome for outcome in self.link.outcomes() if outcome.flags]
        assert finals == self.link.outcomes()[-1:]
        return finals[0].number, finals[0].code, finals[0].text


@pytest.fixture(autouse=True)
def new_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """This thread has sent for no stream of another test, which may still be open."""
    # a thread-local of the module
    monkeypatch.setattr(streams, "_sender", streams._Sender())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a reader."""
    monkeypatch.setattr(streams, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(streams, "_SHARED_PATIENCE_S", 0.0)


# ------------------------------------------------------------------- numbers


@pytest.fixture
def world() -> World:
    return World()


def test_responses_are_numbered_and_so_is_the_last(world: World) -> None:
    world.send(3)
    world.sender.send(response(), FINAL)

    assert ([0, 1, 2, 3], (3, 0, "")) == (world.numbers, world.end)


def test_an_end_without_a_response_has_the_next_number(world: World) -> None:
    world.send(2)
    world.sender.send(flags=FINAL)

    assert ((2, 0, ""), {}) == (world.end, world.link.pending)


def test_what_waits_leaves_with_others_in_order(world: World, monkeypatch: Any) -> None:
    turns: list[int] = []
    monkeypatch.setattr(world.link, "turn", lambda **_: turns.append(len(world.numbers)))
    for _ in range(3):
        world.sender.send(response(), waits=True)
    assert [] == turns
    world.sender.flush()
    world.sender.send(response(), waits=True)
    world.sender.send(flags=FINAL)

    assert ([3, 5], (4, 0, "")) == (turns, world.end)


def test_an_error_response_goes_between_others(world: World) -> None:
    world.sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("no")))
    world.sender.send(response())

    assert [(0, "no"), (1, "")] == [(o.number, o.text) for o in world.link.outcomes()]


# ------------------------------------------------------------------- credits


def test_a_stream_stays_within_the_window_of_its_reader(world: World) -> None:
    world.send(STREAM_WINDOW + 10)
    assert (True, list(range(STREAM_WINDOW))) == (world.sender.is_behind(), world.numbers)
    world.stream.grant(4)
    assert list(range(STREAM_WINDOW + 4)) == world.numbers
    world.stream.grant(STREAM_WINDOW)

    assert (False, list(range(STREAM_WINDOW + 10))) == (world.sender.is_behind(), world.numbers)


def test_a_grant_that_is_late_or_a_lie_gives_nothing(world: World) -> None:
    world.send(STREAM_WINDOW + 10)

    world.stream.grant(4)
    world.stream.grant(1)
    world.stream.grant(2**62)
    world.send(3 * STREAM_WINDOW)

    # Of what was not sent nothing can be read: at most as much again as had left.
    assert STREAM_WINDOW + 4 + STREAM_WINDOW == len(world.numbers)


def test_the_end_waits_behind_what_waits(world: World) -> None:
    world.send(STREAM_WINDOW + 1)

    world.sender.send(flags=FINAL)
    assert STREAM_WINDOW == len(world.numbers)
    world.stream.grant(1)

    assert (STREAM_WINDOW + 1, 0, "") == world.end


def test_the_end_itself_needs_no_credit(world: World) -> None:
    world.send(STREAM_WINDOW)

    world.sender.send(response(), FINAL)

    assert (STREAM_WINDOW, 0, "") == world.end


def test_a_sender_that_is_dropped_ends_behind_what_waits(world: World) -> None:
    world.send(STREAM_WINDOW + 1)

    del world.sender
    world.stream.grant(1)

    text = (
        "Failed to process the request(s) for model 'm_0_0', message: "
        "The model let go of a response sender without the FINAL flag."
    )
    assert (STREAM_WINDOW + 1, 2, text) == world.end


def test_a_failure_comes_behind_what_waits(world: World) -> None:
    world.send(STREAM_WINDOW + 1)

    assert [] == world.stream.fail("boom")
    world.stream.grant(1)

    assert (STREAM_WINDOW + 1, 2, "boom") == world.end


def test_a_failure_after_the_end_is_none(world: World) -> None:
    world.send(STREAM_WINDOW + 1)
    world.sender.send(flags=FINAL)

    world.stream.fail("boom")
    world.stream.grant(1)

    assert (STREAM_WINDOW + 1, 0, "") == world.end


@pytest.mark.usefixtures("impatient")
def test_a_reader_that_is_too_far_behind_loses_the_stream(world: World) -> None:
    world.send(STREAM_WINDOW + MAX_BUFFERED)
    assert STREAM_WINDOW == len(world.numbers)
    world.send(1)

    assert (STREAM_WINDOW, UNAVAILABLE, TOO_SLOW) == world.end
    assert world.sender.is_cancelled()
    assert ["W"] == [said.level for said in world.link.sent_to_supervisor]


@pytest.mark.usefixtures("impatient")
def test_what_is_sent_to_a_reader_that_was_too_slow_is_dropped_with_its_memory(
    world: World, withdrawn: list[wire.Outcome]
) -> None:
    world.send(STREAM_WINDOW + MAX_BUFFERED + 1)
    withdrawn.clear()

    world.send(3)
    world.sender.send(response(), FINAL)

    assert [FINAL] == [outcome.flags for outcome in withdrawn]
    assert (STREAM_WINDOW, UNAVAILABLE, TOO_SLOW) == world.end
    with pytest.raises(pb_utils.TritonModelException, match="has been closed"):
        world.sender.send(response())


@pytest.mark.usefixtures("impatient")
def test_also_bytes_are_counted(world: World) -> None:
    world.send(STREAM_WINDOW)

    # Each goes inline here; a stub puts such a tensor into shared memory.
    for _ in range(17):
        world.sender.send(response(1 << 20))

    assert UNAVAILABLE == world.end[1]


def test_a_thread_with_one_stream_waits_for_its_reader(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_PATIENCE_S", 20.0)
    world.send(STREAM_WINDOW + MAX_BUFFERED)
    world.link.turn_actions.append(lambda: world.stream.grant(5))

    world.send(1)

    assert STREAM_WINDOW + 5 == len(world.numbers)
    assert not world.sender.is_cancelled()


def test_a_thread_with_other_streams_hardly_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_PATIENCE_S", 20.0)
    slow = World()
    slow.send(STREAM_WINDOW + MAX_BUFFERED)
    other = World()
    other.send(1)

    begun = time.monotonic()
    slow.send(1)

    assert time.monotonic() - begun < 10.0
    assert UNAVAILABLE == slow.end[1]
    assert [0] == other.numbers


# -------------------------------------------------------------- cancellation


def test_a_cancelled_stream_sends_nothing_more_but_its_end(
    world: World, withdrawn: list[wire.Outcome]
) -> None:
    world.send(1)

    world.stream.cancel()
    world.send(2)
    assert [0] == world.numbers
    world.sender.send(response(), FINAL)

    assert [FINAL] == [outcome.flags for outcome in withdrawn]
    assert (1, CANCELLED, "request was cancelled") == world.end


def test_a_cancelled_stream_that_loses_nothing_ends_as_it_would_have(world: World) -> None:
    world.send(1)

    world.stream.cancel()
    world.sender.send(flags=FINAL)

    assert (1, 0, "") == world.end


def test_a_cancelled_stream_forgets_what_waits(world: World) -> None:
    world.send(STREAM_WINDOW + 5)
    world.sender.send(flags=FINAL)

    world.stream.cancel()

    assert (STREAM_WINDOW, CANCELLED, "request was cancelled") == world.end
    assert {} == world.link.pending


def test_a_closed_sender_stays_closed_after_cancellation(world: World) -> None:
    world.sender.send(flags=FINAL)
    world.stream.cancel()

    with pytest.raises(pb_utils.TritonModelException, match="has been closed"):
        world.sender.send(response())


# ----------------------------------------------------------------- publisher


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[tuple[Publisher, Any]]:
    """A publisher and a subscriber for PEER that is not connected yet."""
    with zmq.Context() as context:
        listener = endpoints.listen(str(tmp_path), 7)
        publisher = Publisher(endpoints.stream_address(str(tmp_path), 7), listener)
        subscriber = zmq_sockets.open_subscriber(context, PEER)
        yield publisher, subscriber
        publisher.close(0)
        subscriber.close()


def answer(
    peer: int = PEER, code: int = 0, flags: int = 0, blocks: int = 0
) -> tuple[wire.Outcome, bytes]:
    leased = [wire.Block(7, 1, number) for number in range(blocks)]
    return wire.Outcome(peer, 5, code, "", flags, 0, leased), b"body"


def test_the_first_response_goes_through_the_broker_where_its_time_counts(tmp_path: Path) -> None:
    publisher = Publisher(endpoints.stream_address(str(tmp_path), 7), is_timed=True)
    outcome, _ = answer()

    # both ways say the same, and one is cheaper
    assert not publisher._is_plain(outcome)
    assert publisher._is_plain(outcome._replace(number=1))
    publisher.close(0)


def subscribe(publisher: Publisher, subscriber: Any, directory: Path) -> None:
    """Returns when what is published arrives."""
    subscriber.connect(endpoints.stream_address(str(directory), 7))
    deadline = time.monotonic() + 20
    while publisher.send([answer()]):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    received(subscriber)


def received(subscriber: Any) -> tuple[list[int], list[bytes]]:
    """The peers of the next message's outcomes, and its bodies."""
    assert subscriber.poll(20_000)
    first, *bodies = zmq_sockets.receive(subscriber)
    assert endpoints.topic(PEER) == first[: endpoints.TOPIC_BYTES]
    results = wire.decode(first[endpoints.TOPIC_BYTES :])
    return [outcome.peer for outcome in results.outcomes], bodies


def test_a_subscriber_gets_its_responses_in_one_message(
    sockets: tuple[Publisher, Any], tmp_path: Path
) -> None:
    publisher, subscriber = sockets
    subscribe(publisher, subscriber, tmp_path)

    assert [answer(PEER + 1)] == publisher.send([answer(), answer(PEER + 1), answer()])
    assert ([PEER, PEER], [b"body", b"body"]) == received(subscriber)


@pytest.mark.parametrize(
    "important", [answer(code=3), answer(flags=FINAL), answer(blocks=1)], ids=str
)
def test_what_the_broker_must_know_of_goes_over_it(
    sockets: tuple[Publisher, Any], tmp_path: Path, important: tuple[wire.Outcome, bytes]
) -> None:
    publisher, subscriber = sockets
    subscribe(publisher, subscriber, tmp_path)

    assert [important] == publisher.send([important])
    assert [important] == publisher.send([answer(), important])


def test_a_subscriber_that_leaves_is_served_by_the_broker_again(
    sockets: tuple[Publisher, Any], tmp_path: Path
) -> None:
    publisher, subscriber = sockets
    subscribe(publisher, subscriber, tmp_path)

    subscriber.close()

    # It is noticed when the next frontend is met; what was sent to it is lost with it.
    deadline = time.monotonic() + 20
    while publisher.send([answer(PEER + 1), answer()]) != [answer(PEER + 1), answer()]:
        assert time.monotonic() < deadline


def test_answers_travel_together_up_to_something_else() -> None:
    error, other = answer(code=3), [b"frames"]
    waiting: deque[Any] = deque([answer(), answer(), other, answer(), error, answer()])

    assert [answer()] * 3 == coalesce(answer(), waiting)
    assert other == waiting.popleft()
    assert [answer()] == coalesce(waiting.popleft(), waiting)
    assert [error] == coalesce(waiting.popleft(), waiting)


# ------------------------------------------------------------------- threads


def test_many_threads_ask_for_the_sender_of_one_request() -> None:
    link = FakeLink(is_decoupled=True)
    for own_id in range(200):
        pending: OpenRequest = link.add_request(body(), own_id)
        request = inference.received(pending, "", {}, [])
        barrier = threading.Barrier(2)

        def ask(request: Any = request, barrier: threading.Barrier = barrier) -> Any:
            barrier.wait()
            return request.get_response_sender()

        with ThreadPoolExecutor(2) as threads:
            first, second = [threads.submit(ask) for _ in range(2)]
        assert first.result() is second.result()


# ------------------------------------------------------------------- windows of bytes


MIB = 1 << 20
IN_WINDOW = wire.STREAM_WINDOW_BYTES // MIB


@pytest.fixture
def client() -> World:
    return World(wire.BYTE_WINDOW)


@pytest.mark.usefixtures("impatient")
def test_large_responses_to_a_client_wait_for_it(client: World) -> None:
    for number in range(2 * IN_WINDOW):
        client.sender.send(response(MIB))
        if number % 2:
            client.stream.grant(number)

    for _ in range(IN_WINDOW - 1):
        client.sender.send(response(MIB))
    sent = len(client.numbers)
    assert 3 * IN_WINDOW - 1 == sent
    client.sender.send(response(MIB))
    client.sender.send(flags=FINAL)

    assert sent == len(client.numbers), "it is kept here"
    client.stream.grant(sent)
    assert (sent + 1, 0, "") == client.end


@pytest.mark.usefixtures("impatient")
def test_a_client_that_is_behind_is_cut_once_there_is_no_room_for_all() -> None:
    memory = ClientMemory(Mock(), 2 * wire.STREAM_WINDOW_BYTES)
    place = Mock(for_clients=memory, place=lambda rows, *_: (rows, []))
    client = World(wire.BYTE_WINDOW, place)

    for _ in range(3 * IN_WINDOW):
        client.sender.send(response(MIB))
    assert not client.sender.is_cancelled()
    client.sender.send(response(MIB))

    assert (IN_WINDOW, UNAVAILABLE, TOO_SLOW) == client.end
    assert memory.may_keep(client.stream.route[0]), "what was kept is free again"


@pytest.mark.usefixtures("impatient")
def test_one_response_to_a_client_may_have_any_size(client: World) -> None:
    for number in range(3):
        client.sender.send(response(3 * wire.STREAM_WINDOW_BYTES))
        client.stream.grant(number + 1)
    client.sender.send(flags=FINAL)

    assert (3, 0, "") == client.end


@pytest.mark.usefixtures("impatient")
def test_small_responses_to_a_client_are_counted_only(client: World) -> None:
    for _ in range(STREAM_WINDOW):
        client.sender.send(response(4000))
    client.sender.send(flags=FINAL)

    assert (STREAM_WINDOW, 0, "") == client.end


@pytest.mark.usefixtures("impatient")
def test_models_that_read_each_other_are_not_held_back_by_bytes(world: World) -> None:
    for _ in range(5 * IN_WINDOW):
        world.sender.send(response(MIB))

    assert list(range(5 * IN_WINDOW)) == world.numbers


@pytest.mark.usefixtures("impatient")
def test_what_a_client_does_not_hold_back_any_more_leaves_the_window(client: World) -> None:
    for _ in range(IN_WINDOW):
        client.sender.send(response(MIB))

    client.stream.grant(0, IN_WINDOW)
    for _ in range(IN_WINDOW):
        client.sender.send(response(MIB))

    assert list(range(2 * IN_WINDOW)) == client.numbers


def test_the_next_response_is_not_placed_before_there_is_room(
    client: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_PATIENCE_S", 20.0)
    client.sender.send(response(9 * MIB))
    encoded: list[Any] = []
    encode = OpenStream.encode

    def grant() -> None:
        assert not encoded
        client.stream.grant(1)

    def note(*arguments: Any) -> Any:
        encoded.append(arguments)
        return encode(*arguments)

    monkeypatch.setattr(OpenStream, "encode", note)
    client.link.turn_actions.append(grant)

    client.sender.send(response(9 * MIB))

    assert [0, 1] == client.numbers


def test_a_client_that_leaves_wakes_what_waits_for_it(
    client: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_PATIENCE_S", 60.0)
    client.sender.send(response(9 * MIB))
    client.link.turn_actions.append(client.stream.cancel)

    begun = time.monotonic()
    client.sender.send(response(9 * MIB))
    assert time.monotonic() - begun < 30.0
    client.sender.send(flags=FINAL)

    assert (1, CANCELLED, "request was cancelled") == client.end


def wait_for(
    world: World, monkeypatch: pytest.MonkeyPatch, *, heard_every_s: float, taken_after_s: float
) -> None:
    """Send what has to wait, on a clock of its own."""
    now_s = 100.0

    def wait(timeout_ms: int) -> None:
        nonlocal now_s
        now_s += heard_every_s / 2
        if now_s - 100.0 > taken_after_s:
            world.stream.grant(1)
        elif (now_s - 100.0) % heard_every_s == 0:
            world.stream.grant(0)  # as much as it had taken before: it is at the next one

    monkeypatch.setattr(streams, "time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr(world.link, "wait", wait)
    world.sender.send(response(9 * MIB))


def test_a_client_that_goes_on_is_waited_for(
    client: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.sender.send(response(9 * MIB))

    wait_for(client, monkeypatch, heard_every_s=1.0, taken_after_s=300.0)

    assert [0, 1] == client.numbers


def test_for_a_client_that_has_stopped_responses_wait_here(
    client: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client.sender.send(response(9 * MIB))

    wait_for(client, monkeypatch, heard_every_s=16.0, taken_after_s=300.0)

    assert [0] == client.numbers
    assert not client.sender.is_cancelled()
    client.stream.grant(1)
    assert [0, 1] == client.numbers


def test_a_thread_with_other_streams_does_not_wait_while_there_is_room(
    client: World, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.sender.send(response(9 * MIB))
    world.send(1)
    monkeypatch.setattr(client.link, "wait", Mock(side_effect=AssertionError))

    client.sender.send(response(9 * MIB))

    assert [0] == client.numbers
    client.stream.grant(1)
    assert [0, 1] == client.numbers


@pytest.mark.parametrize(("taken_after_s", "is_kept"), [(4.0, True), (300.0, False)])
def test_a_thread_with_other_streams_waits_a_while_for_a_client_that_goes_on(
    client: World,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    taken_after_s: float,
    *,
    is_kept: bool,
) -> None:
    monkeypatch.setattr(OpenStream, "_may_keep_more", False)
    client.sender.send(response(9 * MIB))
    world.send(1)

    wait_for(client, monkeypatch, heard_every_s=0.5, taken_after_s=taken_after_s)

    assert is_kept == (len(client.numbers) == 2 and not client.sender.is_cancelled())


class Memory:
    """A model's memory of which clients have too much for a while."""

    def __init__(self, link: Any, *, full_turns: int) -> None:
        self.for_clients = self
        self.placed = 0
        self._full_turns = full_turns
        link.instance.memory = self

    def is_full(self, peer: int) -> bool:
        assert not self.placed, "there is room before anything is made"
        self._full_turns -= 1
        return self._full_turns >= 0

    def may_keep(self, peer: int) -> bool:
        return True

    def place(self, rows: Any, *_: Any) -> Any:
        self.placed += 1
        return rows, []


def test_a_response_waits_for_its_readers_process_to_come_to_what_it_has(client: World) -> None:
    memory = Memory(client.link, full_turns=5)

    client.sender.send(response(MIB), FINAL)

    assert (1, (0, 0, "")) == (memory.placed, client.end)


@pytest.mark.usefixtures("impatient")
def test_it_does_not_wait_for_ever(client: World) -> None:
    memory = Memory(client.link, full_turns=1 << 30)

    client.sender.send(response(MIB), FINAL)

    assert (1, (0, 0, "")) == (memory.placed, client.end)
