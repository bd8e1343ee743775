"""Figures that processes pass on: metrics, spans, splits of traffic, progress of executions."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from zmqtriton_floor import endpoints, metrics, spans, wire
from zmqtriton_floor.errors import InvalidArgument, ZmqTritonError
from zmqtriton_floor.execution_progress import SIZE, ProgressView, end
from zmqtriton_floor.metrics import COUNTER, HISTOGRAM
from zmqtriton_floor.process import zmq_sockets
from zmqtriton_floor.routing import ALL, goes_to_trial, is_copied
from zmqtriton_floor.wire import TrafficSplit

# ----------------------------------------------------------------------------- metrics


@pytest.mark.parametrize("name", ["a", "_", "vllm:requests_total", "nv_trt_llm_request_metrics"])
def test_names_of_prometheus_are_taken(name: str) -> None:
    metrics.check_family(name, "", COUNTER)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("1a", "", COUNTER), "Invalid metric name"),
        (("ä", "", COUNTER), "Invalid metric name"),
        (("a\n", "", COUNTER), "Invalid metric name"),
        (("a" * 257, "", COUNTER), "Invalid metric name"),
        (("zmqtriton_x", "", COUNTER), "one of the server's own"),
        (("a", "x" * 1025, COUNTER), "a description can have at most 1024 characters"),
        (("a", "", True), "Invalid metric kind"),
    ],
)
def test_a_family_that_cannot_be_is_refused(arguments: Any, text: str) -> None:
    with pytest.raises(ZmqTritonError, match=text):
        metrics.check_family(*arguments)


@pytest.mark.parametrize(
    ("kind", "labels", "buckets", "text"),
    [
        (COUNTER, {"a b": ""}, [], "Invalid label name"),
        (COUNTER, {3: ""}, [], "Invalid label name"),
        (HISTOGRAM, {"le": ""}, [], "Invalid label name"),
        (COUNTER, {"a": 3}, [], "attempt to access JSON non-string as string"),
        (COUNTER, {"a": "x" * 4096}, [], "64 labels of 4096 characters"),
        (COUNTER, {f"a{n}": "" for n in range(65)}, [], "64 labels of 4096 characters"),
        (HISTOGRAM, {}, [2.0, 1.0], "Bucket Boundaries must be strictly sorted"),
        (HISTOGRAM, {}, [float("nan")], "Bucket Boundaries must be strictly sorted"),
        (HISTOGRAM, {}, [*range(257)], "a histogram can have at most 256 buckets"),
    ],
)
def test_a_metric_that_cannot_be_is_refused(
    kind: int, labels: Any, buckets: list[float], text: str
) -> None:
    with pytest.raises(ZmqTritonError, match=text):
        metrics.check_metric(kind, labels, buckets)


def test_only_a_histogram_has_le_for_itself() -> None:
    metrics.check_metric(COUNTER, {"le": "x"}, [])


# ------------------------------------------------------------------- configuration
@pytest.mark.row("--metrics-config")
@pytest.mark.parametrize(
    ("config", "has"),
    [
        ([], True),
        ([("summary_latencies", "true")], True),
        ([("counter_latencies", "false")], False),
        ([("counter_latencies", "false"), ("counter_latencies", "true")], True),
    ],
)
def test_latency_counters_are_an_option(config: list[tuple[str, str]], has: bool) -> None:
    assert has is metrics.config_of(config).has_counters


def test_histograms_and_summaries_are_asked_for() -> None:
    config = metrics.config_of([("histogram_latencies", "true"), ("summary_latencies", "1")])

    assert (config.has_histograms, config.has_summaries) == (True, True)
    assert not any(metrics.config_of([])[1:3])


@pytest.mark.row("--metrics-config")
@pytest.mark.parametrize(
    ("text", "quantiles"),
    [
        ("0.9:0.01,0.5:0.05", [0.5, 0.9]),
        ("0.25", [0.25]),
        ("x:0.1,0.5:0.05,7:0.1,,nan", [0.5]),
        ("", [0.5, 0.9, 0.95, 0.99, 0.999]),
    ],
)
def test_quantiles_are_those_that_make_sense_or_tritons(text: str, quantiles: list[float]) -> None:
    assert tuple(quantiles) == metrics.config_of([("summary_quantiles", text)]).quantiles


def test_labels_come_from_all_options_and_the_last_value_of_a_name_counts() -> None:
    options = [("labels", "team=a,site=x=y"), ("labels", "team=vision")]

    assert (("site", "x=y"), ("team", "vision")) == metrics.config_of(options).labels


@pytest.mark.parametrize(
    "text", ["team", "team=", "=x", "a=b,", "1a=x", "__a=x", "a-b=x", "é=x", "model=x", "le=x"]
)
def test_a_label_is_refused_that_prometheus_or_the_server_cannot_have(text: str) -> None:
    with pytest.raises(InvalidArgument):
        metrics.read_labels(text)


# ------------------------------------------------------------------------------- spans
# Names of spans: W3C's traceparent, and the tracestate behind it.


_TRACE = "0af7651916cd43dd8448eb211c80319c"


_NAME = f"00-{_TRACE}-b7ad6b7169203331-01"


def test_a_name_has_its_state_behind_it_and_hands_it_down() -> None:
    context = spans.named(f"cc-{_TRACE}-b7ad6b7169203331-00-more", "a=b,c=d")

    assert (f"00-{_TRACE}-b7ad6b7169203331-00", "a=b,c=d") == spans.parts(context)
    for name in (spans.among(context), spans.below(context, 3, 4)):
        traceparent, state = spans.parts(name)
        assert (_TRACE, "-01", "a=b,c=d") == (traceparent[3:35], traceparent[-3:], state)
        assert spans.span_of(name) != spans.span_of(context)
    assert (_NAME, "") == spans.parts(spans.named(_NAME))


def test_spans_below_others_are_the_same_for_all_and_no_two_are_one() -> None:
    first, second = _NAME, spans.below(_NAME, 1, 1)
    pairs = [(peer, number) for peer in range(20) for number in range(50)]

    names = {spans.below(above, *pair) for above in (first, second) for pair in pairs}

    assert (2 * len(pairs), second, 55) == (len(names), spans.below(_NAME, 1, 1), len(second))


def test_a_new_trace_has_ids_of_its_own() -> None:
    first, second = spans.new(), spans.new()

    assert 55 == len(first)
    assert first[3:35] != second[3:35]


def test_what_was_sent_before_the_end_arrives_though_nobody_listened_yet(tmp_path: Path) -> None:
    sender = spans.SpanSender(str(tmp_path))
    sender.send(_NAME, {"model": "m"})
    closing = threading.Thread(target=sender.close)
    closing.start()

    context = zmq.Context()
    puller = zmq_sockets.open_puller(context, endpoints.spans_address(str(tmp_path)), 10)
    (frame,) = zmq_sockets.receive(puller) if puller.poll(30_000) else [b""]
    closing.join(30)
    puller.close()
    context.term()

    assert wire.Span(_NAME, '{"model": "m"}') == wire.decode(frame)
    sender.send(_NAME, {})  # nobody minds


def test_spans_that_are_not_taken_are_counted_and_told_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frames: list[bytes] = []

    def offer(parts: list[bytes]) -> bool:
        frames.extend(parts)
        return len(frames) not in (2, 3)

    monkeypatch.setattr(zmq_sockets, "Pusher", lambda *_: SimpleNamespace(offer=offer))
    sender = spans.SpanSender("")

    for _ in range(5):
        sender.send(_NAME, {})

    details = [wire.decode(frame).details for frame in frames]
    assert ["{}", "{}", '{"lost": 1}', '{"lost": 2}', "{}"] == details


# ----------------------------------------------------------------------- traffic split
# The division of requests between two versions.


def split(weight: int, shadow: int = 0) -> TrafficSplit:
    return TrafficSplit("m", 1, 2, weight, shadow=shadow)


@pytest.mark.parametrize("correlation", [0, "", 7, "a"])
def test_none_and_all_are_exact(correlation: int | str) -> None:
    for _ in range(100):
        assert not goes_to_trial(split(0), correlation)
        assert goes_to_trial(split(ALL), correlation)


@pytest.mark.row("L16")
def test_shares_are_about_right() -> None:
    sequences = sum(goes_to_trial(split(2000), number) for number in range(1, 10_001))
    others = sum(goes_to_trial(split(2000), 0) for _ in range(10_000))
    copies = sum(is_copied(split(0, shadow=2000)) for _ in range(10_000))

    for count in (sequences, others, copies):
        assert 1500 < count < 2500


def test_a_sequence_stays_and_a_greater_share_takes_none_away() -> None:
    for correlation in [*range(1, 200), *"abcdefgh", "\udc80"]:
        choices = [goes_to_trial(split(weight), correlation) for weight in range(0, ALL, 500)]

        assert (sorted(choices), choices[3]) == (choices, goes_to_trial(split(1500), correlation))


# ------------------------------------------------------------------ execution progress
# A page that a stub and the broker share.


#: A small page, and how many requests each half of it has room for.
PAGE_BYTES = 1 << 18


ROOM = (PAGE_BYTES - 32) // 32


def test_what_a_killed_process_wrote_last_is_read_by_the_other() -> None:
    with tempfile.TemporaryFile() as page:
        page.truncate(SIZE)
        ours = ProgressView(page.fileno())
        assert 0 == ours.last_begun_batch

        pid = os.fork()
        if pid == 0:
            theirs = ProgressView(page.fileno())
            for number in (1, 2, 2**40):
                theirs.begin(number)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)

        assert 2**40 == ours.last_begun_batch
        ours.close()


@pytest.fixture
def sides() -> Iterator[tuple[ProgressView, ProgressView]]:
    with tempfile.TemporaryFile() as page:
        page.truncate(PAGE_BYTES)
        sides = ProgressView(page.fileno()), ProgressView(page.fileno())
    yield sides
    for side in sides:
        side.close()


@pytest.fixture
def stub(sides: tuple[ProgressView, ProgressView]) -> ProgressView:
    return sides[0]


@pytest.fixture
def broker(sides: tuple[ProgressView, ProgressView]) -> ProgressView:
    return sides[1]


def test_where_they_are_too_many_any_may_have_begun_until_they_are_fewer(
    stub: ProgressView, broker: ProgressView
) -> None:
    keys = [(3, number) for number in range(ROOM + 1)]

    stub.begin(7, keys[1:], lambda: keys)
    stub.begin(8, keys[:1], lambda: keys)
    assert broker.may_have_begun((4, 1))
    stub.begin(9, keys[1:], lambda: keys)
    assert broker.may_have_begun((4, 1))
    stub.begin(10, keys[2:], lambda: keys[1:2])
    assert broker.may_have_begun((4, 1)), "one more than when they were too many is looked for"
    stub.begin(11, keys[2:3], lambda: keys[1:2])

    assert not broker.may_have_begun((4, 1))
    assert broker.begun_keys() == frozenset(keys[1:3])


@pytest.mark.parametrize("overwritten", [PAGE_BYTES, 16])
def test_who_reads_an_overwritten_page_after_the_stub_finds_its_last_batch(
    stub: ProgressView, broker: ProgressView, overwritten: int
) -> None:
    stub.begin(7, [(3, 1)])
    # as a model could that writes where it likes
    broker._page[:overwritten] = b"\xff" * overwritten
    assert not stub.begin(8, [(3, 2)])
    assert not stub.has_ended

    stub.restore()

    assert 7 == broker.last_begun_batch
    assert broker.begun_keys() is None


def test_a_stub_whose_page_was_ended_knows(stub: ProgressView) -> None:
    with tempfile.TemporaryFile() as page:
        page.truncate(SIZE)
        ended = ProgressView(page.fileno())
        end(page.fileno())

    assert ended.has_ended
    assert not stub.has_ended
    ended.close()
