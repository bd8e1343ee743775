"""Which requests share a batch by their cost and their likeness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.broker.scheduling.fitted_days import INT32, STRING, FittedDay
from tests.broker.world import BrokerHarness, F, S, request
from tools import pictures
from zmqtriton.broker.scheduling.fitting import FittingQueue, Meter
from zmqtriton_floor import wire

pytestmark = pytest.mark.slow

_SEEDS = range(12)


@pytest.mark.parametrize("seed", _SEEDS)
def test_fitted_batches_keep_their_laws_whatever_comes(seed: int) -> None:
    FittedDay(seed).run(200)


# The faults below are made in these parts of a batch.
_WITHIN, _ARRANGE = FittingQueue._within_budget, FittingQueue._arrange
_TAKE = FittingQueue.take


def _one_more(queue: Any, waiting: Any) -> Any:
    waiting = [*waiting]
    within, closing = _WITHIN(queue, waiting)
    return waiting[: len(within) + 1], closing


def _newest_first(queue: Any, waiting: Any, now_ns: int) -> Any:
    return _ARRANGE(queue, waiting, now_ns)[::-1]


def _by_size_alone(queue: Any, waiting: Any, now_ns: int) -> Any:
    return sorted(waiting, key=lambda one: one.measured.likeness)


def _never(*_: Any) -> bool:
    return False


def _without_the_last(queue: Any, requests: Any) -> Any:
    return _TAKE(queue, requests)[:-1] or requests


def _not_yet(queue: Any, waiting: Any, now_ns: int) -> Any:
    return []


@pytest.mark.parametrize(
    ("name", "broken", "law"),
    [
        ("_within_budget", _one_more, "the budget is exceeded"),
        ("_arrange", _newest_first, "a request starves"),
        ("_arrange", _by_size_alone, "priorities are mixed"),
        ("_is_hurried", _never, "its end is near"),
        ("choose", _not_yet, "a request waits beyond the delay"),
        ("take", _without_the_last, "answers are not whole"),
    ],
)
def test_a_law_that_is_broken_is_found(
    name: str, broken: Callable[..., Any], law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FittingQueue, name, broken)

    assert any(law in _fault(seed) for seed in _SEEDS)


def _fault(seed: int) -> str:
    try:
        FittedDay(seed).run(200)
    except AssertionError as error:
        return str(error)
    return ""


def body(*tensors: wire.Tensor) -> bytes:
    return wire.encode_body(wire.RequestBody("", {}, [], [*tensors]))


def texts(*lengths: int) -> wire.Tensor:
    data = b"".join(size.to_bytes(4, "little") + b"x" * size for size in lengths)
    return wire.Tensor("A", STRING, [len(lengths), 1], data)


def numbers(*values: int, shape: list[int] | None = None) -> wire.Tensor:
    data = b"".join(value.to_bytes(4, "little", signed=True) for value in values)
    return wire.Tensor("A", INT32, shape or [len(values), 1], data)


_ELSEWHERE = wire.Reference(7, 1, 1, 0, 4000)


@pytest.mark.parametrize(
    ("measure", "tensor", "cost"),
    [
        ("elements(A)", numbers(*range(6), shape=[2, 3]), 6),
        ("bytes(A)", numbers(*range(6), shape=[2, 3]), 24),
        ("bytes(A)", texts(3, 0, 4), 7),
        ("bytes(A)", wire.Tensor("A", STRING, [2, 1], _ELSEWHERE), 3992),
        ("value(A)", numbers(5, -3, 2), 7),
        ("value(A)", wire.Tensor("A", INT32, [1000, 1], _ELSEWHERE), 1e15),
        ("elements(A)", numbers(1, shape=[-1, 9]), 0),
        ("bytes(A)", wire.Tensor("B", INT32, [1, 1], b"1234"), 0),
    ],
)
def test_costs_are_measured(measure: str, tensor: wire.Tensor, cost: float) -> None:
    meter = Meter(config(BATCH_COST=measure, MAX_BATCH_COST="9"))

    assert cost == meter.size(body(tensor)).cost


@pytest.mark.parametrize(
    ("measure", "tensor", "largest"),
    [
        ("shape(A)", numbers(*range(12), shape=[2, 3, 2]), (3, 2)),
        ("shape(A)", texts(3, 0, 4), (4,)),
        ("shape(A)", wire.Tensor("A", STRING, [2, 1], _ELSEWHERE), (3992,)),
        ("value(A)", numbers(5, -3, 2), (5,)),
        ("shape(A)", wire.Tensor("A", INT32, [0, 2**40, 3], b""), (0, 0)),
        ("shape(A)", wire.Tensor("B", INT32, [1, 1], b"1234"), ()),
    ],
)
def test_the_largest_row_is_measured(
    measure: str, tensor: wire.Tensor, largest: tuple[float, ...]
) -> None:
    padded = measure.replace("shape", "padded")
    meters = [Meter(config(BATCH_LIKE=measure)), Meter(config(BATCH_COST=padded))]

    assert largest == meters[0].size(body(tensor)).likeness
    assert not meters[1].is_padded or largest == meters[1].size(body(tensor)).largest


def config(**parameters: str) -> dict[str, Any]:
    texts = {name: {"string_value": text} for name, text in parameters.items()}
    ragged = {"name": "A", "data_type": "TYPE_INT32", "dims": [-1], "allow_ragged_batch": True}
    batches = {"max_batch_size": 4, "dynamic_batching": {}, "input": [ragged]}
    return {**batches, "parameters": texts}


def test_a_body_that_cannot_be_read_has_no_cost_and_the_stub_refuses_it() -> None:
    meter = Meter(config(BATCH_COST="value(A)", MAX_BATCH_COST="9"))

    assert meter.size(b"body") == meter.size(body(wire.Tensor("A", INT32, [1, 1], b"123")))
    assert meter.size(b"body") == meter.size(body(wire.Tensor("A", 99, [1, 1], b"1234")))


_SETTINGS: tuple[dict[str, str], ...] = (
    {},
    {"BATCH_COST": "padded(A)", "MAX_BATCH_COST": str(pictures.BUDGET)},
    {
        "BATCH_COST": "padded(A)",
        "MAX_BATCH_COST": str(pictures.BUDGET),
        "BATCH_LIKE": "shape(A)",
    },
)


@pytest.mark.parametrize(
    ("batches", "rows", "parameters"),
    [*zip(pictures.FITTED.values(), pictures.FITTED_ROWS, _SETTINGS, strict=True)],
)
def test_the_broker_makes_the_batches_of_the_picture(
    batches: Any, rows: int, parameters: dict[str, str]
) -> None:
    world = BrokerHarness.serving(config={**config(**parameters), "max_batch_size": rows})
    for number, length in enumerate(pictures.LENGTHS):
        tensor = numbers(*[0] * length, shape=[1, length])
        world.infer(F, request(number), body=body(tensor))
    world.add_stub(S)

    for batch in batches:
        works = world.finish_batch(S)
        assert batch == tuple(pictures.LENGTHS[work.id] for work in works)


def test_sizes_of_requests_that_have_left_are_not_kept() -> None:
    world = BrokerHarness.serving(config=config(BATCH_LIKE="shape(A)"))
    for number in range(1, 50):
        world.infer(F, request(number), body=body(numbers(1)))
        world.cancel(F, number)
    queue: Any = world.core.generations.schedulers[1].queue

    assert len(queue.levels.arrived) <= 1


def test_requests_that_are_put_back_are_in_both_orders_of_the_figures() -> None:
    world = BrokerHarness.serving(config=config(BATCH_LIKE="shape(A)"))
    for number, length in enumerate([9, 1, 9, 1, 9, 1, 9, 1], 1):
        tensor = numbers(*[0] * length, shape=[1, length])
        world.infer(F, request(number), body=body(tensor))
    queue: Any = world.core.generations.schedulers[1].queue

    queue.put_back(queue.pop_batch(world.now))
    while queue.pop_batch(world.now):
        pass

    assert {"input": "A", "real": 76, "padded": 76, "otherwise": 108} == queue.report()["padding"]


def test_batches_that_end_at_the_budget_are_counted_and_those_that_are_full_are_not() -> None:
    world = BrokerHarness.serving(config=config(BATCH_COST="elements(A)", MAX_BATCH_COST="10"))
    for number, length in enumerate([6, 6, 1, 1, 1, 1, 1]):
        world.infer(F, request(number), body=body(numbers(*[0] * length, shape=[1, length])))
    world.add_stub(S)

    assert [1, 4, 2] == [len(world.finish_batch(S)) for _ in range(3)]
    assert 1 == world.figures()["batching"]["spent"]


def test_what_likeness_would_save_is_estimated_without_it() -> None:
    world = BrokerHarness.serving(config=config())
    for number, length in enumerate([9, 1] * 8, 1):
        tensor = numbers(*[0] * length, shape=[1, length])
        world.infer(F, request(number), body=body(tensor))
    world.add_stub(S)
    while world.batched_requests[S]:
        world.finish_batch(S)

    # the first, the second and the fourth batch, each with those that waited behind it
    estimate = {"input": "A", "real": 80 + 60 + 20, "padded": 144 + 108 + 36, "otherwise": 192}
    assert estimate == world.figures()["batching"]["estimate"]
