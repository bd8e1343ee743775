"""Metrics of a real server as a collector gets them, beside those on its page."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.scraping import sum_series
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_extras.otlp_metrics.tests.metrics_collector import (
    Line,
    MetricsCollector,
    Point,
    lines,
)

pytestmark = pytest.mark.system

INPUT = {"name": "INPUT0", "shape": [4], "datatype": "FP32", "data": [1, 2, 3, 4]}
SUCCESS = "nv_inference_request_success"
#: Of each, the line is on the page and the value is of its moment.
_OF_THE_MOMENT = re.compile(
    r"nv_cpu|nv_gpu|zmqtriton_(.*(memory|cpu|busy|pressure|neighbours|turn|executi|bytes|leased|conn"
    r"|refused_points|otlp|http_responses).*)"
)


@pytest.fixture
def collector() -> Iterator[MetricsCollector]:
    with MetricsCollector() as collector:
        yield collector


class PushingServer(Server):
    def __init__(
        self, directory: Path, url: str, *options: str, interval_s: int = 1, **more: Any
    ) -> None:
        pushed = (f"--otlp-metrics={url}", f"--otlp-metrics-interval-secs={interval_s}")
        models = ["identity_fp32", "measuring"]
        super().__init__(directory, models, options=[*pushed, *options], **more)

    def __enter__(self) -> PushingServer:
        super().__enter__()
        return self

    def infer(self, count: int = 1) -> None:
        for _ in range(count):
            path = "/v2/models/identity_fp32/infer"
            assert 200 == self.request_json(path, {"inputs": [INPUT]})[0]


def base(url: str) -> str:
    return url.removesuffix("/v1/metrics")


def page_lines(server: Server) -> dict[Line, float]:
    families = text_string_to_metric_families(server.metrics_text())
    return {
        (sample.name.removesuffix("_total"), frozenset(_plain(sample.labels).items())): sample.value
        for family in families
        for sample in family.samples
    }


def pushed_lines(points: list[Point]) -> dict[Line, float]:
    return {
        # the parser gives all counters one
        (name.removesuffix("_total"), frozenset(_plain(dict(labels)).items())): value
        for point in points
        for (name, labels), value in lines(point).items()
    }


def _plain(labels: dict[str, str]) -> dict[str, str]:
    """Labels as Prometheus keeps them, with numbers in one form."""
    numbers = {key: str(float(labels[key])) for key in ("le", "quantile") if key in labels}
    return {key: value for key, value in (labels | numbers).items() if value}


def test_a_collector_gets_all_that_is_on_the_page(
    tmp_path: Path, collector: MetricsCollector
) -> None:
    kept = ("histogram_latencies=true", "summary_latencies=true")
    options = [f"--metrics-config={setting}" for setting in kept]
    with PushingServer(tmp_path, base(collector.url), *options) as server:
        server.infer(3)

        def is_pushed() -> bool:
            point = collector.last(SUCCESS, model="identity_fp32")
            return point is not None and point.raw.as_double == 3

        eventually(is_pushed, 60)
        # its own count of pages is on the page from the second on
        count = len(collector.messages)
        eventually(lambda: len(collector.messages) > count, 60)
        pushed, expected = pushed_lines(collector.messages[-1]), page_lines(server)

    assert expected.keys() == pushed.keys()
    steady = {line for line in expected if not _OF_THE_MOMENT.match(line[0])}
    assert len(steady) > 50
    # quantiles of nothing are no number
    assert {line: str(float(expected[line])) for line in steady} == {
        line: str(float(pushed[line])) for line in steady
    }
    kinds = {point.prometheus_type for point in collector.messages[-1]}
    assert {"counter", "gauge", "histogram", "summary"} == kinds
    (resource,) = collector.resources
    assert "triton-inference-server" == resource["service.name"]
    assert f"{socket.gethostname()}:{server.metrics_port}" == resource["service.instance.id"]


def test_without_the_page_and_at_the_end_the_last_requests_are_pushed(
    tmp_path: Path, collector: MetricsCollector
) -> None:
    server = PushingServer(tmp_path, collector.url, interval_s=3600, frontends=())
    with server:
        eventually(lambda: collector.messages, 60)
        server.infer(2)

    point = collector.last(SUCCESS, model="identity_fp32")
    assert point is not None
    assert 2 == point.raw.as_double
    assert (
        f"{socket.gethostname()}:{server.http_port}"
        == collector.resources[0]["service.instance.id"]
    )
    assert collector.last("nv_cpu_utilization") is None  # as --allow-metrics=false says


@pytest.mark.long(
    "extras/otlp_metrics/test_exporter.py::test_pauses_of_an_outage_double_and_its_begin_and_end_are_logged_once"
)
def test_an_outage_fails_no_request_and_ends_when_the_collector_is_back(
    tmp_path: Path, collector: MetricsCollector
) -> None:
    collector.close()
    with PushingServer(tmp_path, collector.url) as server:
        failed = "zmqtriton_otlp_pages_total"
        eventually(lambda: sum_series(server, failed, result="failed") >= 2, 60)
        server.infer()
        collector.open()
        eventually(lambda: collector.last(SUCCESS, model="identity_fp32"), 60)
        eventually(lambda: sum_series(server, failed, result="accepted") >= 1, 60)

    log = server.log_text()
    assert 1 == log.count("metrics cannot be pushed to")
    assert 1 == log.count("metrics are pushed to")


@pytest.mark.long(
    "extras/otlp_metrics/test_conversion.py::test_a_series_that_is_gone_is_told_until_the_collector_has_it"
)
def test_a_killed_pusher_comes_back_and_an_unloaded_model_is_told(
    tmp_path: Path, collector: MetricsCollector
) -> None:
    with PushingServer(
        tmp_path, collector.url, "--model-control-mode=explicit", "--load-model=*"
    ) as server:
        server.infer()
        first = eventually(lambda: collector.last(SUCCESS, model="identity_fp32"), 60)

        (pid,) = server.pids()["otlp_metrics"]
        os.kill(pid, signal.SIGKILL)

        def is_new() -> bool:
            point = collector.last(SUCCESS, model="identity_fp32")
            assert point is not None
            return point.raw.start_time_unix_nano > first.raw.time_unix_nano

        eventually(is_new, 60)
        assert "" == server.control_model("unload", "identity_fp32")

        def has_ended() -> bool:
            point = collector.last(SUCCESS, model="identity_fp32")
            return point is not None and point.has_ended

        eventually(has_ended, 60)


@pytest.mark.long(
    "extras/otlp_metrics/test_exporter.py::test_a_collector_that_does_not_answer_is_waited_for_so_long_and_no_longer"
)
def test_a_collector_that_never_answers_keeps_no_server_from_ending(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with PushingServer(tmp_path, url, "--exit-timeout-secs=3") as server:
            server.infer()
            silent.settimeout(60)
            connection, _ = silent.accept()
        connection.close()

    assert 0 == server.returncode


def test_the_end_does_not_wait_for_a_collector_that_hangs(tmp_path: Path) -> None:
    """Metrics, the log and spans go to one that accepts and never answers."""
    with ExitStack() as held, socket.create_server(("127.0.0.1", 0)) as hanging:
        hanging.settimeout(240)
        url = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        tracing = ["mode=opentelemetry", "rate=1", "level=TIMESTAMPS"]
        tracing += [f"opentelemetry,url={url}/v1/traces", "opentelemetry,bsp_schedule_delay=100"]
        options = [f"--trace-config={word}" for word in tracing]
        options += [f"--otlp-logs={url}", "--exit-timeout-secs=90"]
        with PushingServer(tmp_path, url, *options) as server:
            server.infer()
            waiting = set[bytes]()
            while len(waiting) < 3:  # each waits for its answer, whichever asks again meanwhile
                connection = held.enter_context(hanging.accept()[0])
                connection.settimeout(240)
                waiting.add(held.enter_context(connection.makefile("rb")).readline())

            began_s = time.monotonic()
            assert 0 == server.stop(240), server.log_text()
            assert time.monotonic() - began_s < 30, server.log_text()  # of three

        assert {b"metrics", b"logs", b"traces"} == {
            line.split()[1].removeprefix(b"/v1/") for line in waiting
        }
    log = server.log_text()
    assert "All models are stopped, unloading models" in log
    assert "Exit timeout expired" not in log
    assert re.search(r"\d+ spans of traces were not exported to http://127.0.0.1", log)
    for process in ("OtlpMetrics", "OtlpLogs"):
        assert f"{process}: the collector does not answer; the last push is lost" in log
