"""Streams to clients: a window in bytes, and how long a model waits for a client that goes on."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from tests.stub.execution import test_streams
from tests.stub.execution.test_streams import (
    CANCELLED,
    TOO_SLOW,
    UNAVAILABLE,
    World,
    response,
)
from zmqtriton_floor import wire
from zmqtriton_floor.wire import FINAL, STREAM_WINDOW
from zmqtriton_stub.execution import streams
from zmqtriton_stub.execution.streams import Stream
from zmqtriton_stub.memory.client_memory import ClientMemory

impatient = test_streams.impatient

MIB = 1 << 20
IN_WINDOW = wire.STREAM_WINDOW_BYTES // MIB


def to_client() -> World:
    return World(wire.BYTE_WINDOW)


@pytest.mark.usefixtures("impatient")
def test_large_responses_to_a_client_wait_for_it() -> None:
    world = to_client()
    for number in range(2 * IN_WINDOW):
        world.sender.send(response(MIB))
        if number % 2:
            world.stream.grant(number)

    for _ in range(IN_WINDOW - 1):
        world.sender.send(response(MIB))
    sent = len(world.numbers)
    assert 3 * IN_WINDOW - 1 == sent
    world.sender.send(response(MIB))
    world.sender.send(flags=FINAL)

    assert sent == len(world.numbers), "it is kept here"
    world.stream.grant(sent)
    assert (sent + 1, 0, "") == world.end


@pytest.mark.usefixtures("impatient")
def test_a_client_that_is_behind_is_cut_once_there_is_no_room_for_all() -> None:
    world = to_client()
    memory = ClientMemory(Mock(), 2 * wire.STREAM_WINDOW_BYTES)
    world.link.instance.memory = Mock(for_clients=memory, place=lambda rows, *_: (rows, []))

    for _ in range(3 * IN_WINDOW):
        world.sender.send(response(MIB))
    assert not world.sender.is_cancelled()
    world.sender.send(response(MIB))

    assert (IN_WINDOW, UNAVAILABLE, TOO_SLOW) == world.end
    assert memory.may_keep(world.stream.route[0]), "what was kept is free again"


@pytest.mark.usefixtures("impatient")
def test_one_response_to_a_client_may_have_any_size() -> None:
    world = to_client()

    for number in range(3):
        world.sender.send(response(3 * wire.STREAM_WINDOW_BYTES))
        world.stream.grant(number + 1)
    world.sender.send(flags=FINAL)

    assert (3, 0, "") == world.end


@pytest.mark.usefixtures("impatient")
def test_small_responses_to_a_client_are_counted_only() -> None:
    world = to_client()

    for _ in range(STREAM_WINDOW):
        world.sender.send(response(4000))
    world.sender.send(flags=FINAL)

    assert (STREAM_WINDOW, 0, "") == world.end


@pytest.mark.usefixtures("impatient")
def test_models_that_read_each_other_are_not_held_back_by_bytes() -> None:
    world = World()

    for _ in range(5 * IN_WINDOW):
        world.sender.send(response(MIB))

    assert list(range(5 * IN_WINDOW)) == world.numbers


@pytest.mark.usefixtures("impatient")
def test_what_a_client_does_not_hold_back_any_more_leaves_the_window() -> None:
    world = to_client()
    for _ in range(IN_WINDOW):
        world.sender.send(response(MIB))

    world.stream.grant(0, IN_WINDOW)
    for _ in range(IN_WINDOW):
        world.sender.send(response(MIB))

    assert list(range(2 * IN_WINDOW)) == world.numbers


def test_the_next_response_is_not_placed_before_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "_PATIENCE_S", 20.0)
    world = to_client()
    world.sender.send(response(9 * MIB))
    encoded: list[Any] = []
    encode = Stream.encode

    def grant() -> None:
        assert not encoded
        world.stream.grant(1)

    def note(*arguments: Any) -> Any:
        encoded.append(arguments)
        return encode(*arguments)

    monkeypatch.setattr(Stream, "encode", note)
    world.link.turn_actions.append(grant)

    world.sender.send(response(9 * MIB))

    assert [0, 1] == world.numbers


def test_a_client_that_leaves_wakes_what_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_PATIENCE_S", 60.0)
    world = to_client()
    world.sender.send(response(9 * MIB))
    world.link.turn_actions.append(world.stream.cancel)

    begun = time.monotonic()
    world.sender.send(response(9 * MIB))
    assert time.monotonic() - begun < 30.0
    world.sender.send(flags=FINAL)

    assert (1, CANCELLED, "request was cancelled") == world.end


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

    clock = SimpleNamespace(monotonic=lambda: now_s)
    monkeypatch.setattr(streams, "time", clock)
    monkeypatch.setattr(world.link, "wait", wait)
    world.sender.send(response(9 * MIB))


def test_a_client_that_goes_on_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    world = to_client()
    world.sender.send(response(9 * MIB))

    wait_for(world, monkeypatch, heard_every_s=1.0, taken_after_s=300.0)

    assert [0, 1] == world.numbers


def test_for_a_client_that_has_stopped_responses_wait_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = to_client()
    world.sender.send(response(9 * MIB))

    wait_for(world, monkeypatch, heard_every_s=16.0, taken_after_s=300.0)

    assert [0] == world.numbers
    assert not world.sender.is_cancelled()
    world.stream.grant(1)
    assert [0, 1] == world.numbers


def test_a_thread_with_other_streams_does_not_wait_while_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, other = to_client(), World()
    world.sender.send(response(9 * MIB))
    other.send(1)
    monkeypatch.setattr(world.link, "wait", Mock(side_effect=AssertionError))

    world.sender.send(response(9 * MIB))

    assert [0] == world.numbers
    world.stream.grant(1)
    assert [0, 1] == world.numbers


@pytest.mark.parametrize(("taken_after_s", "is_kept"), [(4.0, True), (300.0, False)])
def test_a_thread_with_other_streams_waits_a_while_for_a_client_that_goes_on(
    monkeypatch: pytest.MonkeyPatch, taken_after_s: float, *, is_kept: bool
) -> None:
    world, other = to_client(), World()
    monkeypatch.setattr(Stream, "_may_keep_more", False)
    world.sender.send(response(9 * MIB))
    other.send(1)

    wait_for(world, monkeypatch, heard_every_s=0.5, taken_after_s=taken_after_s)

    assert is_kept == (len(world.numbers) == 2 and not world.sender.is_cancelled())


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


def test_a_response_waits_for_its_readers_process_to_come_to_what_it_has() -> None:
    world = to_client()
    memory = Memory(world.link, full_turns=5)

    world.sender.send(response(MIB), FINAL)

    assert 1 == memory.placed
    assert (0, 0, "") == world.end


@pytest.mark.usefixtures("impatient")
def test_it_does_not_wait_for_ever() -> None:
    world = to_client()
    memory = Memory(world.link, full_turns=1 << 30)

    world.sender.send(response(MIB), FINAL)

    assert 1 == memory.placed
    assert (0, 0, "") == world.end
