from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from zmqtriton.broker.metrics.model_metrics import ReportedMetrics as BrokersMeasures
from zmqtriton.broker.outbox import Outbox
from zmqtriton_floor import metrics, wire
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.metrics import COUNTER, GAUGE, HISTOGRAM
from zmqtriton_stub import instance
from zmqtriton_stub.api import metrics as pb_metrics
from zmqtriton_stub.broker import model_metrics
from zmqtriton_stub.broker.model_metrics import Measured, ModelMetrics

pytestmark = pytest.mark.slow


class BrokersEnd:
    """A link with a broker's state machine at its other end."""

    def __init__(self) -> None:
        self.is_closed = False
        self.woken = 0
        self.is_executing = False
        self.sent: list[wire.Call] = []
        self.outbox = Outbox()
        self.broker = BrokersMeasures(self.outbox)
        self.queue: list[list[bytes]] = []
        self.measures: ModelMetrics
        self._lock = threading.Lock()

    def put(self, frames: list[bytes]) -> None:
        self.queue.append(frames)

    def turn(self) -> None:
        with self._lock:
            self._turn()

    def _turn(self) -> None:
        while self.queue:
            call = wire.decode(self.queue.pop(0)[0])
            self.sent.append(call)
            self.broker.take_call(7, call)
        for _, answer in self.outbox.answers:
            self.measures.answered(answer)
        self.outbox.answers = []

    def wake(self) -> None:
        self.woken += 1

    def is_busy(self) -> bool:
        return self.is_executing

    def poll(self) -> None:
        """Nothing else is to be looked after."""

    def wait(self, timeout_ms: int) -> None:
        """Nothing arrives by itself."""

    @property
    def values(self) -> dict[str, float]:
        return {f["name"]: series["value"] for f in self.broker.page() for series in f["series"]}


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> BrokersEnd:
    # What is flushed is flushed by the test.
    monkeypatch.setattr(model_metrics, "_FLUSH_EVERY_S", 1e9)
    monkeypatch.setattr(model_metrics, "_SENT_AT_ONCE", 1)
    return BrokersEnd()


def connect(link: Any, measures: ModelMetrics) -> None:
    """As link.connect does."""
    link.measures = measures
    with measures.lock:
        link.queue.clear()
        for frames in measures.introduce(link):
            link.put(frames)
    link.turn()


@pytest.fixture
def measures() -> ModelMetrics:
    return ModelMetrics()


@pytest.fixture
def counter(measures: ModelMetrics, link: BrokersEnd) -> Measured:
    """One that the broker knows."""
    connect(link, measures)
    return measures.add(measures.add_family("f", "", COUNTER), COUNTER, {}, [])


def test_before_there_is_a_broker_the_own_sum_is_the_answer(
    measures: ModelMetrics, link: BrokersEnd
) -> None:
    counter = measures.add(measures.add_family("f", "", COUNTER), COUNTER, {}, [])
    for _ in range(model_metrics.MAX_CHANGES + 5):
        measures.change(counter, "add", 1)
    expected = float(model_metrics.MAX_CHANGES + 5)

    assert expected == measures.value(counter)

    connect(link, measures)
    assert {"f": expected} == link.values
    link.broker.take_call(7, wire.Call(0, "measure", f'[["add", {counter.number}, 0.5]]'))
    assert expected + 0.5 == measures.value(counter)


def test_changes_travel_as_one_sum(
    measures: ModelMetrics, counter: Measured, link: BrokersEnd
) -> None:
    measures.flush()
    link.sent.clear()

    for _ in range(100):
        measures.change(counter, "add", 0.5)
    assert [] == link.sent
    measures.flush()

    [call] = link.sent
    assert ([["add", counter.number, 50.0]], 0) == (json.loads(call.arguments), call.id)
    measures.flush()
    assert 1 == len(link.sent)


def test_the_loop_is_woken_once_unless_it_looks_anyway(
    measures: ModelMetrics, counter: Measured, link: BrokersEnd
) -> None:
    measures.flush()
    link.woken = 0

    measures.change(counter, "add", 1)
    measures.change(counter, "add", 1)
    assert 1 == link.woken
    measures.flush()

    link.is_executing = True
    measures.change(counter, "add", 1)
    assert 1 == link.woken


def test_amid_a_long_execution_changes_leave_all_the_same(
    link: BrokersEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_metrics, "_FLUSH_EVERY_S", 0.0)
    measures = ModelMetrics()
    link.is_executing = True
    connect(link, measures)
    measures.change(measures.add(measures.add_family("f", "", COUNTER), COUNTER, {}, []), "add", 1)

    assert {"f": 1.0} == link.values


def test_amid_an_execution_the_page_has_what_was_just_changed(
    link: BrokersEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_metrics, "_SENT_AT_ONCE", 8)
    measures = ModelMetrics()
    link.is_executing = True
    connect(link, measures)
    family = measures.add_family("f", "", HISTOGRAM)

    histogram = measures.add(family, HISTOGRAM, {"a": "b"}, [0.1, 1.0])
    created = [*link.broker.page()[0]["series"][0]["counts"]]
    for value in (0.05, 0.5, 7.0):
        measures.change(histogram, "observe", value)

    assert ([0, 0, 0], [1, 1, 1]) == (created, link.broker.page()[0]["series"][0]["counts"])
    # but a model that changes much does not send a message for each
    link.sent.clear()
    for _ in range(100):
        measures.change(histogram, "observe", 0.5)
    assert len(link.sent) < 8


def test_a_new_broker_is_told_all_of_it_once(measures: ModelMetrics, link: BrokersEnd) -> None:
    connect(link, measures)
    kinds = {"c": COUNTER, "g": GAUGE, "set": GAUGE, "h": HISTOGRAM}
    families = {name: measures.add_family(name, "", kind) for name, kind in kinds.items()}
    made = {
        name: measures.add(families[name], kind, {}, [1.0] if kind == HISTOGRAM else [])
        for name, kind in kinds.items()
    }
    for verb, name, value in (("add", "c", 2), ("add", "g", -3), ("set", "set", 4)):
        measures.change(made[name], verb, value)
    measures.flush()
    # On its way when the broker died: sent into the void, or not at all.
    measures.change(made["c"], "add", 1)
    measures.change(made["set"], "add", 1)
    measures.change(made["h"], "observe", 5)

    other = BrokersEnd()
    connect(other, measures)
    measures.flush()

    assert {"c": 3.0, "g": -3.0, "set": 5.0, "h": 5.0} == other.values


def test_what_is_dropped_is_gone_with_all_that_belongs_to_it(
    measures: ModelMetrics, link: BrokersEnd
) -> None:
    connect(link, measures)
    family = measures.add_family("f", "", COUNTER)
    metric = measures.add(family, COUNTER, {}, [])
    measures.add(family, COUNTER, {"a": "b"}, [])

    measures.drop(family)
    measures.drop(metric.number)
    measures.flush()

    assert [] == link.broker.page()
    other = BrokersEnd()
    connect(other, measures)
    assert [] == other.sent


def test_a_family_that_the_broker_refuses_is_an_error(link: BrokersEnd) -> None:
    texts: list[str] = []
    measures = ModelMetrics()
    measures.report_to(texts.append)
    connect(link, measures)
    link.broker.take_call(8, wire.Call(0, "measure", '[["family", 1, "f", "", 0]]'))

    with pytest.raises(ZmqTritonError, match="exists with different type"):
        measures.add_family("f", "", GAUGE)

    assert ["Family name already exists with different type"] == texts


def test_many_of_them_travel_in_several_messages(measures: ModelMetrics, link: BrokersEnd) -> None:
    family = measures.add_family("f", "", COUNTER)
    for n in range(500):
        measures.add(family, COUNTER, {"n": f"{n:4000}"}, [])

    connect(link, measures)

    assert len(link.sent) > 5
    assert all(len(wire.encode(call)) < wire.MAX_HEADER_BYTES for call in link.sent)
    assert 500 == len(link.broker.page()[0]["series"])


def test_there_may_be_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_METRICS", 2)
    measures = ModelMetrics()
    family = measures.add_family("f", "", COUNTER)
    metric = measures.add(family, COUNTER, {}, [])
    with pytest.raises(ZmqTritonError, match="can have at most 2 metrics and families"):
        measures.add(family, COUNTER, {}, [])

    measures.drop(metric.number)
    measures.value(metric)

    measures.add(family, COUNTER, {}, [])


def test_increments_of_many_threads_are_all_counted(
    measures: ModelMetrics, counter: Measured, link: BrokersEnd
) -> None:
    def add() -> None:
        for _ in range(2000):
            measures.change(counter, "add", 1)

    with ThreadPoolExecutor(4) as threads:
        for _ in range(4):
            threads.submit(add)
    measures.flush()

    assert {"f": 8000.0} == link.values


def test_without_a_server_metrics_work_for_unit_tests_of_models() -> None:
    assert instance.current is None
    family = pb_metrics.MetricFamily("f", "d", pb_metrics.MetricFamily.GAUGE)
    metric = family.Metric({"a": "b"})

    metric.set(3)
    metric.increment(0.5)

    assert (3.5, "<MetricKind.GAUGE: 1>") == (metric.value(), repr(family.GAUGE))
    assert [0, 1, 2] == [int(kind) for kind in pb_metrics.MetricKind]
    with pytest.raises(TypeError, match="No constructor defined"):
        pb_metrics.Metric()
    with pytest.raises(TypeError, match="takes a number"):
        metric.increment("1")  # type: ignore[arg-type]


def test_a_server_that_does_not_answer_is_an_error(
    link: BrokersEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_metrics, "_PATIENCE_S", 0.0)
    measures = ModelMetrics()
    counter = measures.add(measures.add_family("f", "", COUNTER), COUNTER, {}, [])
    connect(link, measures)
    monkeypatch.setattr(link, "turn", lambda: None)

    with pytest.raises(ZmqTritonError, match="did not answer in time"):
        measures.value(counter)
