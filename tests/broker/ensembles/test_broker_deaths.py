"""Runs of ensembles across the death of the broker: which begin anew, and which must not."""

from __future__ import annotations

import pytest

from tests.broker.ensemble_world import EnsembleHarness, ensemble, model, step, tensor
from tests.broker.ensembles.test_ensembles import chain
from zmqtriton.broker.ensembles import scheduler
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable

F = 1


def _follow(before: EnsembleHarness, world: EnsembleHarness) -> EnsembleHarness:
    """Have the broker of one world read what that of the other has written."""
    world.core.answers.begun.adopt(before.core.answers.begun._memory)
    return world


def test_a_run_of_the_time_of_another_broker_of_which_no_step_has_begun_begins() -> None:
    before = chain()
    before.infer_ensemble(1)
    before.infer_ensemble(2)  # waits for the stub of the first step
    before.kill_peer(before.serials["second"])
    world = _follow(before, chain())

    world.infer_ensemble(2, flags=wire.RESENT)

    assert {"first"} == world.busy_models()
    world.respond("first", tensor("O"))
    world.respond("second", tensor("O"))
    assert [0] == [r.code for r in world.finals(F, 2)]


def test_a_run_whose_answer_has_left_is_no_longer_written_down() -> None:
    before = chain()
    before.infer_ensemble(1)
    before.respond("first", tensor("O"))
    assert _follow(before, chain()).core.answers.begun.had_begun((F, 1))

    before.respond("second", tensor("O"))

    assert not _follow(before, chain()).core.answers.begun.had_begun((F, 1))


def test_of_a_run_within_a_run_the_client_s_is_written_down() -> None:
    inner = [step("first", {"I": "x"}, {"O": "y"})]
    outer = [step("inner", {"x": "x"}, {"y": "y"})]
    world = EnsembleHarness(ensemble(outer), ensemble(inner, name="inner"), model("first"))

    world.infer_ensemble(1, wire.RequestBody("", {}, [], [tensor("x", bytes(16))]))

    assert _follow(world, chain()).core.answers.begun.had_begun((F, 1))
    world.respond("first", tensor("O"))
    assert not _follow(world, chain()).core.answers.begun.had_begun((F, 1))


def test_a_run_in_a_sequence_does_not_begin_again() -> None:
    world = chain()

    world.infer_ensemble(1, flags=wire.RESENT | wire.SEQUENCE_START, correlation=7)

    assert set() == world.busy_models()
    assert ["the broker died while the sequence was going on"] == world.error_texts(1)


@pytest.mark.parametrize("steps_done", [0, 1], ids=["a step executes", "a step has answered"])
def test_a_run_that_another_broker_had_begun_is_not_begun_again(steps_done: int) -> None:
    before = chain()
    before.infer_ensemble(1)
    if steps_done:
        before.respond("first", tensor("O"))
    world = _follow(before, chain())

    world.infer_ensemble(1, flags=wire.RESENT)

    assert set() == world.busy_models()
    assert [Unavailable.number] == [r.code for r in world.finals(F, 1)]
    # The same error each time; with a traceback it would keep all of these requests.
    assert scheduler._LOST.__traceback__ is None
