from __future__ import annotations

import json
from typing import Any

import pytest

from tests.broker.world import TOKEN, BrokerHarness
from zmqtriton.broker.metrics.model_metrics import ModelMetrics
from zmqtriton.broker.outbox import Outbox
from zmqtriton_floor import metrics, wire
from zmqtriton_floor.errors import ProtocolError

COUNTER, GAUGE, HISTOGRAM = metrics.COUNTER, metrics.GAUGE, metrics.HISTOGRAM


class Stubs:
    """Several stubs that talk to one broker."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.measures = ModelMetrics(self.outbox)

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


def test_increments_of_several_holders_add_up(stubs: Stubs) -> None:
    for serial in (7, 8):
        stubs.hold(serial, COUNTER)
        stubs.report(serial, ["add", 2, serial])

    assert [15.0] == stubs.values
    assert 15.0 == stubs.ask(7, "value", 2)


def test_a_counter_does_not_fall_as_long_as_somebody_holds_it(stubs: Stubs) -> None:
    for serial in (7, 8):
        stubs.hold(serial, COUNTER)
        stubs.report(serial, ["add", 2, serial])

    stubs.measures.forget_peer(7)
    assert [15.0] == stubs.values

    stubs.report(8, ["drop", 2])
    assert [] == stubs.values
    assert ["f"] == [family["name"] for family in stubs.measures.page()]

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


def test_labels_in_another_order_are_the_same_series(stubs: Stubs) -> None:
    stubs.report(7, ["family", 1, "f", "", COUNTER], ["metric", 2, 1, {"a": "1", "b": "2"}, []])
    stubs.report(7, ["metric", 3, 1, {"b": "2", "a": "1"}, []], ["add", 2, 1], ["add", 3, 2])

    assert [3.0] == stubs.values


def test_a_family_of_another_kind_is_refused_and_what_belongs_to_it_too(stubs: Stubs) -> None:
    stubs.hold(7, COUNTER)
    exists = "Family name already exists with different type"

    refusal = stubs.report(
        8, ["family", 1, "f", "", GAUGE], ["metric", 2, 1, {}, []], ["add", 2, 1]
    )

    assert exists == refusal
    assert exists == stubs.ask(8, "family", 1)
    assert "unknown" in stubs.ask(8, "value", 2)
    assert 0.0 == stubs.ask(7, "family", 1)
    assert [0.0] == stubs.values


def test_what_is_told_again_counts_once(stubs: Stubs) -> None:
    for _ in range(2):
        stubs.hold(7, COUNTER)

    stubs.report(7, ["drop", 2], ["drop", 1])

    assert [] == stubs.measures.page()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ([["family", 1, "a b", "", COUNTER]], "Invalid metric name"),
        ([["family", 1, 3, "", COUNTER]], "Invalid metric name"),
        ([["family", 1, "f", "", 3]], "Invalid metric kind"),
        ([["family", 1, "f", "", 0], ["metric", 2, 1, {"__a": ""}, []]], "Invalid label name"),
    ],
)
def test_what_a_stub_should_have_refused_is_refused(
    stubs: Stubs, changes: list[list[Any]], text: str
) -> None:
    assert text == stubs.report(7, *changes)
    assert [] == stubs.values


def test_a_stub_may_have_only_so_many(stubs: Stubs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_METRICS", 2)
    stubs.hold(7, COUNTER)

    refusal = stubs.report(7, ["metric", 3, 1, {}, []])

    assert "a model instance may have 2 metrics and families at a time" == refusal
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
