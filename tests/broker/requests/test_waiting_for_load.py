"""Requests for models that are not loaded, while the supervisor loads them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.broker.world import TOKEN, BrokerHarness, request
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Cancelled, Unavailable
from zmqtriton_floor.settings.broker import BrokerSettings, OnDemand

ASKER, F, S = 2, 1, 3
_WHERE = "Model m - Error when running inference: "
_SETTINGS = BrokerSettings(on_demand=OnDemand(True, 5.0))
_S = 1_000_000_000


@pytest.fixture
def world() -> BrokerHarness:
    """Nothing is loaded but the model that asks."""
    world = BrokerHarness()
    world.core.configure(1, _SETTINGS)
    world.core.expect(wire.ExpectPeer(ASKER, TOKEN, "stub", "other_0", 0))
    world.add_frontend(F)
    return world


def _ask(own_id: int, **fields: Any) -> wire.Request:
    return request(own_id, generation=0, **{"model": "m", **fields})


def _calls(world: BrokerHarness) -> list[wire.Call]:
    world.drain_outbox()
    return [message for message in world.supervisor_messages if isinstance(message, wire.Call)]


def _answer(world: BrokerHarness, result: Any = None, error: str = "") -> None:
    """To the latest call."""
    number = _calls(world)[-1].id
    code = Unavailable.number if error else 0
    world.core.waiting_for_load.take_result(
        wire.CallResult(number, code, error, json.dumps(result)), world.now
    )
    world.drain_outbox()


def _load(world: BrokerHarness, generation: int = 1, config: dict[str, Any] | None = None) -> None:
    """The supervisor does what the latest call demands."""
    world.add_generation(generation, config=config)
    world.add_stub(S + generation - 1, generation)
    _answer(world, True)


def _replies(world: BrokerHarness, own_id: int, peer: int = ASKER) -> list[tuple[int, str]]:
    return [(reply.code, reply.text) for reply in world.replies.get((peer, own_id), [])]


def test_a_load_that_fails_tells_each_why(world: BrokerHarness) -> None:
    world.infer(ASKER, _ask(1), _ask(2))

    _answer(world, error="no weights")

    assert [(Unavailable.number, f"{_WHERE}no weights")] == _replies(world, 1) == _replies(world, 2)


def test_where_there_is_no_such_model_the_text_is_the_usual_one(world: BrokerHarness) -> None:
    world.infer(ASKER, _ask(1))

    _answer(world, False)

    [(code, text)] = _replies(world, 1)
    assert (Unavailable.number, True) == (code, text.endswith("Model 'm' is not ready."))


def test_who_cancels_is_answered_and_not_executed(world: BrokerHarness) -> None:
    world.infer(ASKER, _ask(1))

    world.cancel(ASKER, 1)
    _load(world)

    assert [Cancelled.number] == [code for code, _ in _replies(world, 1)]
    assert [] == world.batched_requests.get(S, [])


def test_what_a_dead_process_asked_is_forgotten(world: BrokerHarness) -> None:
    world.infer(ASKER, _ask(1))

    world.kill_peer(ASKER)
    _load(world)

    assert [] == world.batched_requests.get(S, [])


_TIMED_OUT = "timed out waiting for the model to load (the load continues)"
_OVERDUE = "Deadline Exceeded: model 'm' was being loaded (the load continues)"


@pytest.mark.parametrize(
    ("deadline_ns", "waits_s", "text"), [(0, 5, _TIMED_OUT), (2 * _S, 2, _OVERDUE)]
)
def test_nobody_waits_for_longer_than_may_be(
    world: BrokerHarness, deadline_ns: int, waits_s: int, text: str
) -> None:
    world.now = 0
    world.infer(ASKER, _ask(1, deadline_ns=deadline_ns))

    assert waits_s * _S == world.core.due_ns
    world.tick(waits_s * _S)

    assert text in _replies(world, 1)[0][1]
    assert world.core.due_ns is None


def _load_and_evict(world: BrokerHarness, config: dict[str, Any]) -> None:
    world.add_generation(generation=1, config=config)
    world.add_stub(S)
    world.retire(1)
    world.remove(1)


def test_a_request_that_was_on_its_way_to_what_went_is_executed_when_it_is_back(
    world: BrokerHarness,
) -> None:
    config = {"name": "m", "max_batch_size": 8}
    _load_and_evict(world, config)

    world.infer(F, request(1, generation=1))

    assert [] == _replies(world, 1, F)
    _load(world, 2, config)
    assert [1] == [work.id for work in world.batched_requests[S + 1]]
