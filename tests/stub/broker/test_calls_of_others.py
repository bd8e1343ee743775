"""Calls of other models, of which nobody awaits the answer any more or somebody else takes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stub.broker.test_bls_client import World
from zmqtriton_floor import wire
from zmqtriton_stub.broker.bls_call import BlsCall


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def test_a_call_whose_wait_is_interrupted_is_dropped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = world.ask()
    world.broker.hear_all(wire.Infer, 1)

    def interrupt(_: BlsCall) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(world.asker.waits, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        world.asker.wait(question)

    assert question.is_dropped


def test_what_somebody_else_has_taken_is_told_at_once_until_the_answer(world: World) -> None:
    question = world.ask()
    world.broker.hear_all(wire.Infer, 1)

    world.asker.grant(question, 3)

    told, _ = world.broker.receive()
    assert [(question.row.id, 3)] == [(ack.id, ack.responses) for ack in told.acks]
    world.broker.reply(question.row.id)
    world.turn_until(lambda: question.is_answered)
    world.asker.grant(question, 4)
    assert not world.broker.socket.poll(50)
