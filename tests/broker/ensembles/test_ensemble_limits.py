"""Requests to ensembles that bound their steps, or whose tensors have shapes of their own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.broker.ensemble_world import EnsembleHarness, ensemble, model, step, tensor
from zmqtriton_floor import wire

F = 1


def limited(limit: int) -> EnsembleHarness:
    """Whatever `many` sends is read by `each`, so many of them at a time."""
    steps = [step("many", {"I": "x"}, {"O": "t"}), step("each", {"I": "t"}, {"O": "y"})]
    decoupled: Any = {"model_transaction_policy": {"decoupled": True}}
    world = EnsembleHarness(model("many", **decoupled), model("each"))
    config = ensemble(steps, **decoupled)
    config["ensemble_scheduling"]["max_inflight_requests"] = limit
    world.numbers["e"] = 9
    world.core.add_generation(wire.AddGeneration(9, "e", 1, json.dumps(config)))
    return world


@pytest.mark.row("E56")
def test_a_step_has_no_more_requests_at_once_than_the_ensemble_says() -> None:
    world = limited(2)
    world.infer_ensemble(1)
    each = next(g for g in world.core.generations if g.model == "each")

    seen = []
    for number in range(4):
        world.respond("many", tensor("O", b"%d" % number), flags=0, number=number)
        seen.append(each.unanswered)
    world.respond("many", flags=wire.FINAL, number=4)
    while world.busy_models():
        world.respond("each", world.executing_request("each").inputs[0]._replace(name="O"))
        seen.append(each.unanswered)

    assert [1, 2, 2, 2, 2, 2, 1, 0] == seen
    assert [b"0", b"1", b"2", b"3"] == [r.outputs[0].data for r in world.responses(1)]
    assert 0 == world.core.limits.unanswered


@pytest.mark.row("E56")
def test_what_waits_for_its_turn_holds_back_the_step_before_it() -> None:
    world = limited(1)
    world.infer_ensemble(1)
    window = wire.STREAM_WINDOW

    for number in range(window):
        world.respond("many", tensor("O"), flags=0, number=number)
    assert {} == world.acknowledged_responses

    for _ in range(window):
        world.respond("each", tensor("O"))
    assert window // 2 <= world.acknowledged_responses[world.serials["many"]][-1]


def test_an_error_drops_what_waits_for_its_turn_and_releases_its_memory() -> None:
    world = limited(1)
    world.infer_ensemble(1)
    serial = world.serials["many"]
    blocks = [wire.Block(serial, 1, number) for number in (1, 2)]
    for number, block in enumerate(blocks):
        output = tensor("O", wire.Reference(*block, 0, 99_999))
        world.respond("many", output, flags=0, number=number, blocks=[block])

    world.respond_error("each", "no luck")
    world.respond("many", flags=wire.FINAL, number=2)

    assert ["in ensemble 'e', no luck"] == world.error_texts(1)
    assert blocks == sorted(world.released_blocks[serial])
    assert 0 == world.core.limits.unanswered


RESHAPED = {"reshape": {"shape": [2, 2]}}


def reshaped(where: str) -> EnsembleHarness:
    """An ensemble whose callers see four elements in a row, and its step two rows of two."""
    config = ensemble([step("m", {"I": "x"}, {"O": "y"})])
    config[where][0] |= RESHAPED
    return EnsembleHarness(config, model("m"))


@pytest.mark.row("E31")
def test_the_steps_see_the_inputs_of_an_ensemble_in_its_own_shape() -> None:
    world = reshaped("input")

    world.infer_ensemble(1)

    assert [2, 2] == world.executing_request("m").inputs[0].shape


@pytest.mark.row("E31")
def test_those_who_ask_see_its_outputs_in_theirs() -> None:
    world = reshaped("output")
    world.infer_ensemble(1)

    world.respond("m", tensor("O", b"data", shape=[2, 2]))

    assert [4] == world.response(1).outputs[0].shape


def test_a_batch_dimension_goes_before_an_output_gets_its_shape() -> None:
    config = ensemble([step("m", {"I": "x"}, {"O": "y"})])
    config["output"][0] |= RESHAPED
    world = EnsembleHarness(config, model("m", max_batch_size=8))
    world.infer_ensemble(1)

    world.respond("m", tensor("O", b"data", shape=[1, 2, 2]))

    assert [4] == world.response(1).outputs[0].shape


def test_a_batch_of_one_is_made_before_an_output_gets_its_shape() -> None:
    config = ensemble([step("m", {"I": "x"}, {"O": "y"})], max_batch_size=8)
    config["output"][0] |= RESHAPED
    world = EnsembleHarness(config, model("m"))
    world.infer_ensemble(1, wire.RequestBody("", {}, [], [tensor("x", shape=[1, 4])]))

    world.respond("m", tensor("O", b"data", shape=[2, 2]))

    assert [1, 4] == world.response(1).outputs[0].shape


def test_an_output_that_cannot_have_its_shape_is_an_error() -> None:
    world = reshaped("output")
    world.infer_ensemble(1)

    world.respond("m", tensor("O", b"data", shape=[2, 2, 2]))

    assert [
        "in ensemble 'e', output tensor shape does not match size of output for 'y'"
    ] == world.error_texts(1)
    assert 0 == world.core.limits.unanswered
