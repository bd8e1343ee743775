"""Times and refusals of requests, and metrics of models."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.world import TOKEN, BrokerHarness
from zmqtriton.broker.metrics.model_metrics import ReportedMetrics
from zmqtriton.broker.metrics.statistics import ModelStatistics, Overdue
from zmqtriton.broker.outbox import Outbox
from zmqtriton.broker.requests.inflight import Batch
from zmqtriton.broker.requests.limits import Limits
from zmqtriton_floor import metrics, wire
from zmqtriton_floor.errors import ProtocolError
from zmqtriton_floor.metrics import REQUEST_BOUNDS_S
from zmqtriton_floor.settings.broker import RequestLimits

# -------------------------------------------------------------------------- statistics
# Times of requests by buckets, and refusals by the limit that they were for.


MILLISECOND = 1_000_000


def request(arrived_ns: int = 0) -> Any:
    return SimpleNamespace(arrived_ns=arrived_ns, elements=1, is_cancelled=False)


def test_each_success_falls_into_the_bucket_whose_bound_it_does_not_exceed() -> None:
    counters = ModelStatistics()

    for took_ns in (1, MILLISECOND // 2, MILLISECOND, MILLISECOND + 1, 60_000 * MILLISECOND):
        counters.record_success(request(7), 7 + took_ns)
    counters.record_cache_hit(request(), 3 * MILLISECOND)

    assert ["0.0005", "0.001", "0.0025", "0.005"] == [str(bound) for bound in REQUEST_BOUNDS_S[:4]]
    assert ([2, 1, 1, 1], 1) == (counters.own()["times"][:4], counters.own()["times"][-1])
    assert counters.success.count == sum(counters.own()["times"])


def test_a_request_in_parts_counts_as_their_executions() -> None:
    counters = ModelStatistics()
    counters.split_above = 4
    executed = wire.Executed(1, 110, 220, 330)

    for size in (11, 8, 4):
        one = SimpleNamespace(arrived_ns=0, dispatched_ns=5, elements=size)
        counters.record_execution(Batch(1, [one], 5), executed)  # type: ignore[list-item]

    stats = counters.as_dict("m", 1, 0, 0)
    assert 3 + 2 + 1 == stats["execution_count"]
    assert {"count": 3, "ns": 330} == stats["inference_stats"]["compute_input"]
    sizes = {row["batch_size"]: row["compute_input"] for row in stats["batch_stats"]}
    assert {4: {"count": 2 + 2 + 1, "ns": 80 + 110 + 110}, 3: {"count": 1, "ns": 30}} == sizes


def test_of_a_busy_model_a_part_of_the_latencies_is_kept() -> None:
    counters = ModelStatistics()
    counters.latencies_mask = 3

    for took_ns in range(1, 9):
        counters.record_cache_hit(request(), took_ns)
    for took_ns in range(9, 17):
        counters.record_success(request(7), 7 + took_ns)

    assert [4, 8, 12, 16] == list(counters.latencies_ns)


def test_an_overdue_request_has_its_time_by_the_clock_on_the_wall() -> None:
    overdue = Overdue(2, allowed_ns=5 * 10**9, queued_ns=10**9, last_ns=3 * 10**9)

    assert {"count": 2, "allowed_s": 5.0, "queued_s": 1.0, "at_s": 103.0} == overdue.as_dict(
        100 * 10**9
    )


def test_a_refusal_for_the_parameter_of_a_model_names_that() -> None:
    limits, counters = Limits(), ModelStatistics()
    limits.configure(RequestLimits(max_requests=10, max_model_requests=3))
    generation: Any = SimpleNamespace(max_requests=1, unanswered=1, statistics=counters)

    limits.refuse(generation, 7)

    assert ("Exceeds maximum queue size (the model's max_requests)", 7) == counters.last_error


# ----------------------------------------------------------------------- model metrics


COUNTER, GAUGE, HISTOGRAM = metrics.COUNTER, metrics.GAUGE, metrics.HISTOGRAM


class Stubs:
    """Several stubs that talk to one broker."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.measures = ReportedMetrics(self.outbox)

    def report(self, serial: int, *changes: list[Any]) -> str:
        """The text of a refusal, or ""."""
        self.measures.take_call(serial, wire.Call(0, "measure", json.dumps(changes)))
        return "".join(answer.text for _, answer in self._answers())

    def ask(self, serial: int, verb: str, about: int) -> Any:
        """Return what is answered: the value, or the text of an error."""
        self.measures.take_call(serial, wire.Call(5, verb, json.dumps(about)))
        [(to, answer)] = self._answers()
        assert (serial, 5) == (to, answer.id)
        return answer.text or json.loads(answer.result)

    def hold(self, serial: int, kind: int, buckets: tuple[float, ...] = ()) -> None:
        """Makes family 1 and metric 2, the same at every stub."""
        self.report(
            serial, ["family", 1, "f", "words", kind], ["metric", 2, 1, {"a": "b"}, buckets]
        )

    def _answers(self) -> list[tuple[int, wire.CallResult]]:
        answers, self.outbox.answers = self.outbox.answers, []
        return answers

    @property
    def values(self) -> list[float]:
        return [series["value"] for family in self.measures.page() for series in family["series"]]


@pytest.fixture
def stubs() -> Stubs:
    return Stubs()


def test_a_counter_does_not_fall_as_long_as_somebody_holds_it(stubs: Stubs) -> None:
    for serial in (7, 8):
        stubs.hold(serial, COUNTER)
        stubs.report(serial, ["add", 2, serial])
    assert ([15.0], 15.0) == (stubs.values, stubs.ask(7, "value", 2))

    stubs.measures.forget_peer(7)
    assert [15.0] == stubs.values

    stubs.report(8, ["drop", 2])
    assert ([], ["f"]) == (stubs.values, [family["name"] for family in stubs.measures.page()])

    stubs.measures.forget_peer(8)
    assert [] == stubs.measures.page()


def test_a_counter_takes_nothing_negative(stubs: Stubs) -> None:
    stubs.hold(7, COUNTER)

    stubs.report(7, ["add", 2, 3], ["add", 2, -1])

    assert [3.0] == stubs.values


def test_what_is_done_to_a_gauge_holds_in_the_order_in_which_it_came(stubs: Stubs) -> None:
    stubs.hold(7, GAUGE)
    stubs.hold(8, GAUGE)

    stubs.report(7, ["add", 2, 3])
    stubs.report(8, ["set", 2, 10, 100])
    stubs.report(7, ["add", 2, -1])

    assert [9.0] == stubs.values


@pytest.mark.parametrize("order", [(7, 8, 9), (9, 8, 7), (8, 9, 7)])
def test_a_new_broker_believes_who_has_set_a_gauge_last(
    stubs: Stubs, order: tuple[int, ...]
) -> None:
    changes = {7: ["was", 2, 10, 100], 8: ["was", 2, 20, 200], 9: ["add", 2, 1]}
    for serial in order:
        stubs.hold(serial, GAUGE)
        stubs.report(serial, changes[serial])

    assert [21.0] == stubs.values


def test_a_histogram_counts_by_the_buckets_of_its_first_holder(stubs: Stubs) -> None:
    stubs.hold(7, HISTOGRAM, (1, 5, 10))
    stubs.hold(8, HISTOGRAM, (2,))
    stubs.report(7, ["observed", 2, [1, 0, 0, 1], 12])
    stubs.report(8, ["observed", 2, [3, 1], 99])

    [[series]] = [family["series"] for family in stubs.measures.page()]
    assert {
        "labels": {"a": "b"},
        "value": 111.0,
        "buckets": [1.0, 5.0, 10.0],
        "counts": [1, 3, 0, 2],
    } == series


def test_a_family_of_another_kind_is_refused_and_what_belongs_to_it_too(stubs: Stubs) -> None:
    stubs.hold(7, COUNTER)
    exists = "Family name already exists with different type"

    refusal = stubs.report(
        8, ["family", 1, "f", "", GAUGE], ["metric", 2, 1, {}, []], ["add", 2, 1]
    )

    assert (exists, exists) == (refusal, stubs.ask(8, "family", 1))
    assert "unknown" in stubs.ask(8, "value", 2)
    assert (0.0, [0.0]) == (stubs.ask(7, "family", 1), stubs.values)


def test_what_is_told_again_counts_once(stubs: Stubs) -> None:
    for _ in range(2):
        stubs.hold(7, COUNTER)

    stubs.report(7, ["drop", 2], ["drop", 1])

    assert [] == stubs.measures.page()


def test_a_stub_may_have_only_so_many(stubs: Stubs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_METRICS", 2)
    stubs.hold(7, COUNTER)

    refusal = stubs.report(7, ["metric", 3, 1, {}, []])

    assert "a model instance can have at most 2 metrics and families at a time" == refusal
    stubs.hold(8, COUNTER)
    assert 1 == len(stubs.values)


@pytest.mark.parametrize(
    ("verb", "document"),
    [
        ("measure", "{"),
        ("measure", "3"),
        ("measure", "[3]"),
        ("measure", "[[]]"),
        ("measure", '[["fly", 1]]'),
        ("measure", '[[["add"], 2, 1]]'),
        ("measure", '[["add", 2]]'),
        ("measure", '[["add", "2", 1]]'),
        ("measure", '[["add", 2, "x"]]'),
        ("measure", '[["metric", 3, 1, [], []]]'),
        ("measure", '[["metric", 3, 1, {}, 5]]'),
        ("measure", '[["observed", 2, [1], 1]]'),
        ("measure", '[["observed", 2, [1, -1, 0], 1]]'),
        ("measure", '[["observed", 2, [1, 0.5, 0], 1]]'),
        ("value", '"x"'),
        ("load", '"x"'),
        ("load", "1"),
    ],
)
def test_what_makes_no_sense_is_dropped(stubs: Stubs, verb: str, document: str) -> None:
    kind = HISTOGRAM if "observed" in document else COUNTER
    stubs.hold(7, kind, (1, 2) if kind == HISTOGRAM else ())

    try:
        stubs.measures.take_call(7, wire.Call(0, verb, document))
    except ProtocolError:
        assert [] == stubs.outbox.answers
    else:
        [(_, answer)] = stubs.outbox.answers
        assert answer.code
    assert [0.0] == stubs.values


def test_only_who_makes_a_page_is_told_and_the_dead_are_forgotten() -> None:
    world = BrokerHarness()
    for serial, role in ((2, "metrics"), (7, "stub")):
        world.core.expect(wire.ExpectPeer(serial, TOKEN, role, role, 0))
    changes = [["family", 1, "f", "", COUNTER], ["metric", 2, 1, {}, []]]
    world.core.model_metrics.take_call(7, wire.Call(0, "measure", json.dumps(changes)))

    def families(kind: int) -> Any:
        world.core.ask_statistics(2, wire.AskStatistics(1, "", -1, kind), 0)
        [(_, answer)] = world.core.outbox.asides
        world.core.outbox.asides = []
        return json.loads(answer.result).get("measures")

    assert None is families(0)
    assert ["f"] == [family["name"] for family in families(wire.PAGE)]
    world.core.remove_peer(wire.PeerDied(7, "killed"), world.now)
    assert [] == families(wire.PAGE)
