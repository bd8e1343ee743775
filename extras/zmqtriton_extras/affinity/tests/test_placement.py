"""Which instance gets a request, as the broker decides it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.broker.world import MILLISECOND, S2, S3, BrokerHarness, F, Page, S, request
from zmqtriton import addons
from zmqtriton_extras.affinity.rule import number_of, weight
from zmqtriton_floor import wire
from zmqtriton_floor.datatypes import BY_CONFIG_NAME
from zmqtriton_floor.settings.broker import BrokerSettings

_STUBS = (S, S2, S3)


def world(*stubs: int, **config: Any) -> BrokerHarness:
    by = str(config.pop("busier_by", 2))
    parameters = {
        "AFFINITY": {"string_value": "header:X"},
        "AFFINITY_BUSIER_BY": {"string_value": by},
        **config.pop("parameters", {}),
    }
    settings = BrokerSettings(offers=addons.offers())
    config |= {"parameters": parameters}
    return BrokerHarness.serving(*(stubs or _STUBS), config=config, settings=settings)


def numbers_of(stub: int, stubs: tuple[int, ...] = _STUBS) -> Iterator[int]:
    """Yield numbers of requests that belong to a stub."""
    for number in range(1, 10_000):
        if stub == max(stubs, key=lambda one: weight(number, f"m_{one}")):
            yield number


def figures(of: BrokerHarness) -> tuple[int, int]:
    own = of.figures()
    return own["affinity_hits"], own["affinity_misses"]


def test_equal_requests_go_to_one_instance_whoever_is_idle() -> None:
    broker = world()
    for own_id in range(1, 13):
        stub = _STUBS[own_id % 3]
        broker.infer(F, request(own_id, placement=next(numbers_of(stub))))
        assert [own_id] == broker.executing(stub)
        broker.finish_batch(stub)
    assert figures(broker) == (12, 0)


def test_a_request_waits_for_its_instance_until_that_is_busier_by_so_many() -> None:
    broker, number = world(busier_by=2), next(numbers_of(S2))

    broker.infer(F, *(request(own_id, placement=number) for own_id in (1, 2)))
    assert tuple(map(broker.executing, (S2, S, S3))) == ([1], [], []), "the second one waits"

    broker.infer(F, request(3, placement=number))
    others = broker.executing(S) + broker.executing(S3)
    assert others == [3], "two have come before it"

    broker.finish_batch(S2)
    assert broker.executing(S2) == [2]
    assert figures(broker) == (2, 1)


def test_a_request_without_a_number_goes_to_the_idlest_and_counts_nowhere() -> None:
    broker = world(busier_by=9)
    broker.infer(F, *(request(own_id, placement=next(numbers_of(S))) for own_id in (1, 2, 3)))
    broker.infer(F, request(4), request(5))

    assert tuple(sorted(map(broker.executing, _STUBS))) == ([1], [4], [5])
    assert figures(broker) == (1, 0)


def test_one_that_waits_holds_up_nobody_behind_it() -> None:
    broker = world(busier_by=9)
    mine, other = next(numbers_of(S)), next(numbers_of(S3))
    broker.infer(F, *(request(own_id, placement=mine) for own_id in (1, 2, 3)))
    broker.infer(F, request(4, placement=other))

    assert (broker.executing(S), broker.executing(S3)) == ([1], [4])
    for own_id in (2, 3):
        broker.finish_batch(S)
        assert [own_id] == broker.executing(S), "in their order"


def test_when_an_instance_dies_its_requests_go_to_another_and_come_back_with_it() -> None:
    broker, number = world(busier_by=9), next(numbers_of(S))
    rest = (S2, S3)
    heir = max(rest, key=lambda one: weight(number, f"m_{one}"))
    broker.infer(F, *(request(own_id, placement=number) for own_id in (1, 2)))
    broker.kill_peer(S)

    assert broker.executing(heir) == [2], "what waited for it"
    assert ["m_2" in text for text in broker.texts(1)] == [True], "what it had is told"
    broker.finish_batch(heir)

    broker.add_stub(S)
    broker.infer(F, request(3, placement=number))
    assert broker.executing(S) == [3]


def test_batches_are_of_requests_with_the_same_instance() -> None:
    broker = world(
        max_batch_size=4,
        dynamic_batching={"max_queue_delay_microseconds": 5000},
        busier_by=100,
    )
    first, second = next(numbers_of(S)), next(numbers_of(S2))
    for own_id in range(1, 8):
        broker.infer(F, request(own_id, placement=first if own_id % 2 else second))
    assert broker.executing(S) == [1, 3, 5, 7], "a full batch goes at once"
    assert broker.executing(S2) == []

    broker.tick(5 * MILLISECOND)
    assert broker.executing(S2) == [2, 4, 6], "and what is less when its time is over"


def test_a_full_batch_goes_before_others_that_may_still_grow() -> None:
    broker = world(max_batch_size=2, dynamic_batching={}, busier_by=100)
    first, second = next(numbers_of(S)), next(numbers_of(S2))
    rows = [(1, first), (2, second), (3, second), (4, first)]
    broker.infer(F, *(request(own_id, placement=number) for own_id, number in rows))

    assert (broker.executing(S), broker.executing(S2)) == ([1, 4], [2, 3])


def test_an_instance_that_has_several_batches_gets_more_until_it_is_busier_by_so_many() -> None:
    broker = world(S, S2, busier_by=3)
    for serial in (S3,):
        broker.add_stub(serial, concurrency=8)
    for serial in (S, S2):
        broker.kill_peer(serial)
        broker.add_stub(serial, concurrency=8)
    number = next(numbers_of(S))
    broker.infer(F, *(request(own_id, placement=number) for own_id in range(1, 5)))

    assert broker.executing(S) == [1, 2, 3]
    assert broker.executing(S2) + broker.executing(S3) == [4]


def test_what_was_sent_to_a_stub_that_dies_before_it_begins_is_executed_once() -> None:
    broker, number = world(S, S2), next(numbers_of(S, (S, S2)))
    broker.kill_peer(S)
    broker.add_stub(S, page=Page())
    broker.infer(F, request(1, placement=number), request(2, placement=number))
    assert broker.executing(S) == [1]

    broker.kill_peer(S)
    seen = []
    while broker.executing(S2):
        seen += [work.id for work in broker.finish_batch(S2)]

    assert seen == [1, 2]
    assert len(broker.finals(F, 1) + broker.finals(F, 2)) == 2


def test_a_cancelled_request_leaves_and_a_single_instance_has_all() -> None:
    broker, number = world(S), next(numbers_of(S3))
    broker.infer(F, *(request(own_id, placement=number) for own_id in (1, 2, 3)))
    broker.cancel(F, 2)
    broker.finish_batch(S)

    assert broker.executing(S) == [3]
    assert figures(broker) == (2, 0)


def test_the_batches_of_a_single_instance_wait_for_their_delay_and_are_reported() -> None:
    delay = {"max_queue_delay_microseconds": 5000}
    broker, number = world(S, max_batch_size=4, dynamic_batching=delay), next(numbers_of(S))

    broker.infer(F, request(1, placement=number), request(2))
    assert broker.executing(S) == []

    broker.tick(5 * MILLISECOND)
    assert broker.executing(S) == [1, 2]
    assert figures(broker) == (1, 0)
    assert 1 == broker.figures()["batching"]["batches"]


def test_a_long_queue_is_not_read_for_each_batch() -> None:
    broker, number = world(busier_by=2), next(numbers_of(S))
    queue = broker.core.generations.schedulers[1].queue
    read = 0

    class Levels:
        def __iter__(self) -> Iterator[Any]:
            nonlocal read
            for one in levels:
                read += 1
                yield one

        def __getattr__(self, name: str) -> Any:
            return getattr(levels, name)

    levels = queue.levels
    broker.infer(F, *(request(own_id, placement=number) for own_id in range(1, 501)))
    queue.levels = Levels()  # type: ignore[assignment]
    for _ in range(30):
        for stub in _STUBS:
            broker.finish_batch(stub)

    assert 90 <= read < 90 * 2 * 10


def call(own_id: int, **fields: Any) -> wire.Request:
    """Return a request that a model makes of m, which it knows by its name."""
    return request(own_id, generation=0, model="m", **fields)


def test_what_a_model_asks_goes_by_its_own_parameter_or_input() -> None:
    strings = [f"adapter-{number}" for number in range(20)]
    for rule, of_request in (
        ("parameter:lora", lambda text: wire.RequestBody("", {"lora": text}, [], [])),
        ("input:TEXT:9", lambda text: wire.RequestBody("", {}, [], [_text("TEXT", text)])),
    ):
        broker = world(busier_by=9, parameters={"AFFINITY": {"string_value": rule}})
        for own_id, text in enumerate(strings, 1):
            number = number_of(text[:9].encode() if "input" in rule else text.encode())
            home = max(_STUBS, key=lambda one: weight(number, f"m_{one}"))
            broker.infer(S, call(own_id), body=wire.encode_body(of_request(text)))
            assert [own_id] == broker.executing(home)
            broker.finish_batch(home)
        assert figures(broker) == (20, 0)


def _text(name: str, text: str) -> wire.Tensor:
    data = len(text).to_bytes(4, "little") + text.encode()
    return wire.Tensor(name, BY_CONFIG_NAME["TYPE_STRING"].number, [1], data)


def test_what_a_model_asks_for_a_request_follows_that_request() -> None:
    broker = world(busier_by=9)
    for own_id in range(1, 13):
        stub = _STUBS[own_id % 3]
        broker.infer(F, request(own_id, placement=next(numbers_of(stub))))
        broker.infer(stub, call(own_id, caller_peer=F, caller_id=own_id))
        # and so does what that one asks in its turn
        broker.finish_batch(stub)
        assert [own_id] == broker.executing(stub)
        broker.infer(stub, call(100 + own_id, caller_peer=stub, caller_id=own_id))
        broker.finish_batch(stub)
        assert [100 + own_id] == broker.executing(stub)
        broker.finish_batch(stub)
    assert figures(broker) == (36, 0)


def test_what_a_model_asks_for_nobody_goes_to_the_idlest_and_is_read_once() -> None:
    broker = world(busier_by=9)
    broker.infer(S, *(call(own_id) for own_id in (1, 2, 3)))

    assert sorted(map(broker.executing, _STUBS)) == [[1], [2], [3]]
    assert figures(broker) == (0, 0)


def test_models_without_a_rule_have_the_usual_placement() -> None:
    settings = BrokerSettings(offers=addons.offers())
    broker = BrokerHarness.serving(S, settings=settings)
    scheduler = broker.core.generations.schedulers[1]

    assert type(scheduler.placement).__name__ == "Placement"
    assert type(scheduler.queue).__name__ == "Queue"
    assert "affinity_hits" not in broker.figures()
