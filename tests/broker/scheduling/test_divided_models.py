"""Models whose requests are divided between two versions: models' requests, steps and sequences."""

from __future__ import annotations

import json

import pytest

from tests.broker.world import BrokerHarness, F, request
from zmqtriton.broker.scheduling.generations import GenerationRegistry
from zmqtriton_floor import wire
from zmqtriton_floor.routing import ALL

OVER = wire.TrafficSplit("m", 0, 0, 0)


def registry(config: str = "{}") -> GenerationRegistry:
    generations = GenerationRegistry()
    for number in (1, 2):
        generations.add_or_update(wire.AddGeneration(10 * number, "m", number, config))
    return generations


def split(weight: int) -> wire.TrafficSplit:
    return wire.TrafficSplit("m", 1, 2, weight)


def number_for(
    generations: GenerationRegistry, version: int = -1, correlation: wire.Correlation = 0
) -> int:
    row = wire.Request(1, 0, "m", version, 0, 0, 0, 0, 0, 0, correlation)
    return generations.find(row).number


def test_a_model_that_asks_for_no_version_gets_the_stable_one_or_the_canary() -> None:
    generations = registry()
    assert 20 == number_for(generations)

    generations.divide(split(0))
    assert (10, 10, 20) == (
        number_for(generations),
        number_for(generations, 1),
        number_for(generations, 2),
    )
    generations.divide(split(ALL))
    assert (20, 10, 20) == (
        number_for(generations),
        number_for(generations, 1),
        number_for(generations, 2),
    )
    generations.divide(split(ALL // 2))
    assert {10, 20} == {number_for(generations) for _ in range(100)}
    generations.divide(OVER)
    assert 20 == number_for(generations)


def test_what_is_read_of_a_divided_model_is_the_stable_version() -> None:
    generations = registry()
    generations.divide(split(ALL))

    newest = generations.newest("m", -1)

    assert newest is not None
    assert 10 == newest.number


def uncopied(generations: GenerationRegistry) -> list[int]:
    trials = (generation.statistics.trial for generation in generations)
    return [trial.uncopied for trial in trials if trial is not None]


def test_a_request_of_a_model_that_a_canary_would_get_a_copy_of_is_counted() -> None:
    generations = registry()
    generations.divide(wire.TrafficSplit("m", 1, 2, 0, "", "", ALL))

    number_for(generations)
    number_for(generations, 1)
    generations.newest("m", -1)
    assert [1, 0] == uncopied(generations)

    generations.divide(wire.TrafficSplit("m", 1, 2, ALL, "", "", ALL))
    number_for(generations)
    generations.divide(split(0))
    number_for(generations)
    assert [1, 0] == uncopied(generations)
    generations.divide(OVER)
    assert [] == uncopied(generations)


def test_the_other_version_serves_if_one_is_gone() -> None:
    generations = registry()
    generations.divide(split(0))

    generations[10].is_retired = True
    assert 20 == number_for(generations)
    generations.remove(10)
    assert 20 == number_for(generations)


def late(world: BrokerHarness, own_id: int, flags: int = wire.ANY_VERSION) -> None:
    """Ask version 1, as a frontend does that has not received what became of it."""
    world.infer(F, request(own_id)._replace(generation=1, flags=flags))


@pytest.mark.parametrize("has_left", [False, True])
@pytest.mark.parametrize("outputs", ["", '{"name": "MORE", "data_type": "TYPE_FP32"}'])
def test_a_request_on_its_way_to_the_version_that_goes_gets_the_other_one(
    has_left: bool, outputs: str
) -> None:
    world = BrokerHarness()
    world.add_frontend(F)
    for number, stub in ((1, 5), (2, 6)):
        config = f'{{"output": [{outputs if number == 2 else ""}]}}'
        world.core.add_generation(wire.AddGeneration(number, "m", number, config))
        world.add_stub(stub, number)
    world.core.generations.divide(split(ALL // 2))
    world.core.generations.divide(split(ALL))
    world.core.retire(wire.Retire(1))
    world.drain_outbox()
    if has_left:
        world.core.generations.divide(OVER)
        world.core.remove(wire.RemoveGeneration(1, "unloaded"), world.now)

    late(world, 1)
    late(world, 2, flags=0)

    assert [1] == world.executing(6)
    assert ["the model was unloaded while the request was on its way"] == [
        reply.text for reply in world.finals(F, 2)
    ]


# ------------------------------------------------------------------- sequences

SEQUENCES = json.dumps({"sequence_batching": {"direct": {}}})


@pytest.fixture
def world() -> BrokerHarness:
    """Generation 1 of version 1 and generation 2 of version 2, each with a stub."""
    world = BrokerHarness()
    world.add_frontend(F)
    for number, stub in ((1, 5), (2, 6)):
        world.core.add_generation(wire.AddGeneration(number, "m", number, SEQUENCES))
        world.add_stub(stub, number)
    world.core.generations.divide(split(0))
    return world


def ask(world: BrokerHarness, own_id: int, generation: int, flags: int = 0) -> None:
    row = request(own_id)._replace(generation=generation, correlation=7, flags=flags)
    world.infer(F, row)


@pytest.mark.row("L16")
def test_a_sequence_goes_on_where_it_began_though_the_share_has_changed(
    world: BrokerHarness,
) -> None:
    ask(world, 1, generation=1, flags=wire.SEQUENCE_START)
    world.finish_batch(5)
    world.core.generations.divide(split(ALL))

    ask(world, 2, generation=2)

    assert [2] == world.executing(5)
    assert [] == world.executing(6)


def test_a_sequence_that_is_started_anew_is_over_in_the_other_version(
    world: BrokerHarness,
) -> None:
    ask(world, 1, generation=1, flags=wire.SEQUENCE_START)
    world.finish_batch(5)

    ask(world, 2, generation=2, flags=wire.SEQUENCE_START | wire.SEQUENCE_END)
    world.finish_batch(6)
    ask(world, 3, generation=2)

    assert [] == world.executing(5)
    assert [
        "inference request for sequence 7 to model 'm' must specify the START flag on the first"
    ] == [reply.text.partition(" request of")[0] for reply in world.finals(F, 3)]


def test_a_version_that_ends_waits_for_its_sequences_while_the_other_serves(
    world: BrokerHarness,
) -> None:
    ask(world, 1, generation=1, flags=wire.SEQUENCE_START)
    world.finish_batch(5)
    world.core.generations.divide(split(ALL))

    world.core.retire(wire.Retire(1))
    world.drain_outbox()
    assert [] == [m for m in world.supervisor_messages if isinstance(m, wire.Drained)]

    ask(world, 2, generation=2, flags=wire.SEQUENCE_END)
    assert [2] == world.executing(5)
    world.finish_batch(5)
    world.drain_outbox()
    assert [wire.Drained(1)] == [m for m in world.supervisor_messages if type(m) is wire.Drained]
