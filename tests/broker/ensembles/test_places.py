"""Outputs of ensembles that a step's stub writes to a client's memory itself."""

from __future__ import annotations

from tests.broker.ensemble_world import EnsembleHarness, ensemble, model, step, tensor
from tests.broker.world import F, request
from zmqtriton_floor import wire
from zmqtriton_floor.mappings import REGIONS_FROM

PLACES = [wire.Place(name, F, REGIONS_FROM + 1, 64, 4) for name in "yt"]


def _ask(world: EnsembleHarness, outputs: list[str], places: list[wire.Place]) -> None:
    world.infer_ensemble(1, wire.RequestBody("", {}, outputs, [tensor("x")], places))


def _chain(outputs: str = "y") -> EnsembleHarness:
    """Return an ensemble: x → first → t → second → y."""
    steps = [step("first", {"I": "x"}, {"O": "t"}), step("second", {"I": "t"}, {"O": "y"})]
    return EnsembleHarness(ensemble(steps, outputs=outputs), model("first"), model("second"))


def test_the_step_that_makes_an_output_gets_its_place_under_its_own_name() -> None:
    world = _chain()

    _ask(world, ["y"], PLACES[:1])
    assert [] == world.executing_request("first").places
    world.respond("first", tensor("O", b"made"))
    [place] = world.executing_request("second").places

    assert PLACES[0]._replace(output="O") == place
    world.respond("second", tensor("O")._replace(data=None))
    [body] = world.reply_bodies[F, 1]
    [output] = wire.decode_response(body, has_places=True).outputs
    assert ("y", None) == (output.name, output.data)


def test_an_output_that_another_step_reads_goes_with_the_answer() -> None:
    world = _chain(outputs="yt")

    _ask(world, ["t", "y"], PLACES)
    assert [] == world.executing_request("first").places
    world.respond("first", tensor("O", b"made"))
    assert ["O"] == [place.output for place in world.executing_request("second").places]
    world.respond("second", tensor("O")._replace(data=None))

    [body] = world.reply_bodies[F, 1]
    outputs = wire.decode_response(body, has_places=True).outputs
    assert {"t": b"made", "y": None} == {output.name: output.data for output in outputs}


def test_a_step_that_was_given_no_place_must_send_its_data() -> None:
    world = _chain()

    _ask(world, ["y"], [])
    world.respond("first", tensor("O")._replace(data=None))

    [reply] = world.replies[F, 1]
    assert 0 != reply.code


def test_a_model_that_asks_an_ensemble_lends_no_memory_of_clients() -> None:
    world = _chain()
    body = wire.RequestBody("", {}, ["y"], [tensor("x", bytes(16))], PLACES[:1])

    world.core.infer(
        world.serials["second"], [request(1, world.numbers["e"])], [wire.encode_body(body)], 0
    )
    world.drain_outbox()
    world.respond("first", tensor("O", bytes(16)))

    assert [] == world.executing_request("second").places
