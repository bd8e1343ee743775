"""Decoupled ensembles of clients: their steps are held back by what the client has not read."""

from __future__ import annotations

from typing import Any

from tests.broker.ensemble_world import EnsembleHarness, F, ensemble, model, step, tensor
from zmqtriton_floor import wire

MIB = 1 << 20
IN_WINDOW = wire.STREAM_WINDOW_BYTES // MIB
STEP = IN_WINDOW // 4


def _stream() -> EnsembleHarness:
    """Return an ensemble: x → many (decoupled) → t, t → each → y."""
    steps = [step("many", {"I": "x"}, {"O": "t"}), step("each", {"I": "t"}, {"O": "y"})]
    decoupled: Any = {"model_transaction_policy": {"decoupled": True}}
    return EnsembleHarness(ensemble(steps, **decoupled), model("many", **decoupled), model("each"))


def _make(world: EnsembleHarness, numbers: range, size: int = MIB) -> None:
    for number in numbers:
        world.respond("many", tensor("O", bytes(size)), flags=0, number=number)
        world.respond("each", tensor("O", bytes(size)))


def _passed(world: EnsembleHarness) -> int:
    """Return how many responses the stub of the first step was told that count no longer."""
    return max(world.passed_responses.get(world.serials["many"], [0]))


def _read(world: EnsembleHarness, responses: int) -> None:
    world.core.acknowledge(F, wire.StreamAcks([wire.StreamAck(F, 1, responses)]))
    world.drain_outbox()


def test_decoupled_steps_for_a_client_have_its_window() -> None:
    world = _stream()
    world.infer_ensemble(1, flags=wire.BYTE_WINDOW)
    [work] = world.batched_requests[world.serials["many"]]
    assert work.flags & wire.BYTE_WINDOW

    world.respond("many", tensor("O"), flags=0)

    [work] = world.batched_requests[world.serials["each"]]
    assert not work.flags & wire.BYTE_WINDOW


def test_steps_that_other_models_ask_for_have_none() -> None:
    world = _stream()
    world.infer_ensemble(1)

    [work] = world.batched_requests[world.serials["many"]]
    assert not work.flags & wire.BYTE_WINDOW
    _make(world, range(2 * IN_WINDOW))

    assert {} == world.passed_responses


def test_a_step_goes_on_while_its_bytes_come_and_the_client_reads() -> None:
    world = _stream()
    world.infer_ensemble(1, flags=wire.BYTE_WINDOW)

    for number in range(4 * IN_WINDOW):
        _make(world, range(number, number + 1))
        assert number + 1 - _passed(world) < IN_WINDOW
        _read(world, number + 1)

    assert 4 * IN_WINDOW - STEP <= _passed(world)


def test_what_waits_for_another_step_does_not_count() -> None:
    world = _stream()
    world.infer_ensemble(1, flags=wire.BYTE_WINDOW)

    for number in range(3 * IN_WINDOW):  # the other model is slow
        world.respond("many", tensor("O", bytes(MIB)), flags=0, number=number)

    assert 3 * IN_WINDOW - STEP < _passed(world)


def test_a_client_that_does_not_read_holds_the_first_step_back_and_lets_it_go_on() -> None:
    world = _stream()
    world.infer_ensemble(1, flags=wire.BYTE_WINDOW)
    _make(world, range(2 * IN_WINDOW - 1))
    before = _passed(world)
    assert before <= IN_WINDOW

    # it is at the first, and says so
    _read(world, 0)
    assert before == world.passed_responses[world.serials["many"]][-1]
    _read(world, IN_WINDOW - 1)
    assert before == _passed(world)
    _read(world, IN_WINDOW)

    assert 2 * IN_WINDOW - 1 == _passed(world)


def test_the_count_of_responses_waits_for_the_bytes_as_well() -> None:
    world = _stream()
    world.infer_ensemble(1, flags=wire.BYTE_WINDOW)
    half = wire.STREAM_WINDOW // 2

    _make(world, range(half), wire.STREAM_WINDOW_BYTES // half)
    assert half not in world.acknowledged_responses[world.serials["many"]]
    _read(world, 1)
    _make(world, range(half, half + 1), 1)

    assert half in world.acknowledged_responses[world.serials["many"]]


def test_an_ensemble_in_an_ensemble_is_held_back_likewise() -> None:
    decoupled: Any = {"model_transaction_policy": {"decoupled": True}}
    inner = ensemble([step("many", {"I": "x"}, {"O": "y"})], "inner", **decoupled)
    outer = ensemble([step("inner", {"x": "x"}, {"y": "y"})], **decoupled)
    world = EnsembleHarness(outer, inner, model("many", **decoupled))
    body = wire.RequestBody("", {}, [], [tensor("x", bytes(16))])
    world.infer_ensemble(1, body, flags=wire.BYTE_WINDOW)

    def make(numbers: range) -> None:
        for number in numbers:
            world.respond("many", tensor("O", bytes(MIB)), flags=0, number=number)

    make(range(3 * IN_WINDOW))
    before = _passed(world)
    assert before <= 2 * IN_WINDOW
    _read(world, 3 * IN_WINDOW)
    assert before < _passed(world)

    world.respond("many", flags=wire.FINAL, number=3 * IN_WINDOW)
    assert 3 * IN_WINDOW + 1 == len(world.replies[F, 1])
