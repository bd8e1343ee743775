"""Ensembles whose broker has died, and the places of their tensors."""

from __future__ import annotations

import pytest

from tests.broker.ensemble_world import EnsembleHarness, tensor
from tests.broker.ensembles.test_ensembles import chain, fork
from tests.broker.world import F, Page
from zmqtriton.broker.requests import recovery
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.execution_progress import FENCE_NS
from zmqtriton_floor.mappings import REGIONS_FROM

# ----------------------------------------------------------------------- broker deaths
# Runs of ensembles across the death of the broker: which begin anew, and which must not.


def _follow(before: EnsembleHarness, world: EnsembleHarness) -> EnsembleHarness:
    """Have the broker of one world read what that of the other has written."""
    # the segment is the supervisor's; here the two brokers are of one process
    world.core.begun.adopt(before.core.begun._memory)
    return world


def test_a_run_of_the_time_of_another_broker_of_which_no_step_has_begun_begins() -> None:
    before = chain().infer_ensemble(1)
    before.infer_ensemble(2)  # waits for the stub of the first step
    before.kill_peer(before.serials["second"])
    world = _follow(before, chain())

    world.infer_ensemble(2, flags=wire.RESENT)

    assert {"first"} == world.busy_models()
    world.respond("first", tensor("O"))
    world.respond("second", tensor("O"))
    assert [0] == [r.code for r in world.finals(F, 2)]


def _has_lost(world: EnsembleHarness) -> bool:
    """Return whether the run is refused; otherwise it has begun anew."""
    refused = [Unavailable.number] == [r.code for r in world.finals(F, 1)]
    assert refused != any(world.batched_requests.values())
    return refused


def test_a_run_of_which_a_step_has_answered_is_not_begun_again() -> None:
    before = chain().infer_ensemble(1)
    before.respond("first", tensor("O"))
    world = _follow(before, chain())

    world.infer_ensemble(1, flags=wire.RESENT)

    assert _has_lost(world)
    # The same error each time; with a traceback it would keep all of these requests.
    assert recovery.RUN_LOST.__traceback__ is None


def test_a_run_of_which_two_steps_were_sent_is_not_begun_again() -> None:
    before = fork()
    before.infer_ensemble(1)
    world = _follow(before, fork())

    world.infer_ensemble(1, flags=wire.RESENT)

    assert [Unavailable.number] == [r.code for r in world.finals(F, 1)]


def _one_step_sent() -> tuple[EnsembleHarness, wire.RequestKey]:
    """A broker that follows one which has sent the first step of a run, and that step."""
    before = chain().infer_ensemble(1)
    [sent] = before.batched_requests[before.serials["first"]]
    return _follow(before, chain()), wire.RequestKey(wire.BROKER, sent.id)


#: Another stub of the first model.
SILENT = 99


def _in_doubt(has_begun: bool) -> tuple[EnsembleHarness, wire.RequestKey]:
    """Likewise, with a stub that has not said hello, and may have begun that step."""
    world, sent = _one_step_sent()
    page = Page()
    page.begin(1, [sent] if has_begun else [])
    world.expect_stub(SILENT)
    world.attach(SILENT, world.numbers["first"], page)
    return world, sent


@pytest.mark.parametrize("has_begun", [False, True])
def test_whether_a_run_has_begun_the_page_of_a_silent_stub_says(has_begun: bool) -> None:
    world, _ = _in_doubt(has_begun)

    world.infer_ensemble(1, flags=wire.RESENT)
    assert not world.finals(F, 1), "a fence takes its time"
    assert set() == world.busy_models()
    world.tick(3 * FENCE_NS)

    if has_begun:
        assert set() == world.busy_models(), "it waits until the stub has said hello, or has died"
        world.kill_peer(SILENT)
    assert has_begun == _has_lost(world)


@pytest.mark.parametrize("has_begun", [False, True])
def test_whether_a_run_has_begun_the_page_of_a_dead_stub_says(has_begun: bool) -> None:
    world, _ = _in_doubt(has_begun)
    world.kill_peer(SILENT)

    world.infer_ensemble(1, flags=wire.RESENT)

    assert has_begun == _has_lost(world)


def test_a_run_that_begins_anew_is_written_down_anew() -> None:
    world, _ = _one_step_sent()
    world.infer_ensemble(1, flags=wire.RESENT)
    world.respond("first", tensor("O"))
    assert _follow(world, chain()).core.begun.had_begun((F, 1))

    world.respond("second", tensor("O"))

    assert [0] == [r.code for r in world.finals(F, 1)]
    # what the next broker would read
    assert not any(bytes(world.core.begun._memory))


# ------------------------------------------------------------------------------ places
# Outputs of ensembles that a step's stub writes to a client's memory itself.


PLACES = [wire.Place(name, F, REGIONS_FROM + 1, 64, 4) for name in "yt"]


def _ask(world: EnsembleHarness, outputs: list[str], places: list[wire.Place]) -> None:
    world.infer_ensemble(1, wire.RequestBody("", {}, outputs, [tensor("x")], places))


def test_an_output_that_another_step_reads_goes_with_the_answer() -> None:
    world = chain(outputs="yt")

    _ask(world, ["t", "y"], PLACES)
    assert [] == world.executing_request("first").places
    world.respond("first", tensor("O", b"made"))
    assert ["O"] == [place.output for place in world.executing_request("second").places]
    world.respond("second", tensor("O")._replace(data=None))

    [body] = world.reply_bodies[F, 1]
    outputs = wire.decode_response(body, has_places=True).outputs
    assert {"t": b"made", "y": None} == {output.name: output.data for output in outputs}
