"""Exemplars of a real server, as Prometheus' parser and a real Prometheus read them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.support.needs import find_tool
from tests.support.receivers.collector import Collector
from tests.support.server import Server, free_ports
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

_TIMES = "zmqtriton_request_duration_seconds"
_ACCEPT = "application/openmetrics-text; version=1.0.0"
_TENSOR = {"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Server]:
    settings = ("mode=opentelemetry", "rate=1", "level=TIMESTAMPS")
    exporter = (f"url={collector.url}", "bsp_schedule_delay=50")
    options = [f"--trace-config={setting}" for setting in settings]
    options += [f"--trace-config=opentelemetry,{setting}" for setting in exporter]
    options += ["--metrics-config=summary_latencies=true"]
    options += ["--metrics-config=histogram_latencies=true"]
    with Server(tmp_path_factory.mktemp("exemplars"), ["identity_fp32"], options=options) as server:
        yield server


def page(server: Server, accept: str) -> tuple[str, str]:
    """Return the content type and the text."""
    request = urllib.request.Request(server.metrics_url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def infer(server: Server) -> None:
    path = "/v2/models/identity_fp32/infer"
    assert 200 == server.request_json(path, {"inputs": [_TENSOR]})[0]


def exemplars(server: Server) -> list[Any]:
    text = page(server, _ACCEPT)[1]
    (times,) = (f for f in text_string_to_metric_families(text) if f.name == _TIMES)
    return [sample.exemplar for sample in times.samples if sample.exemplar is not None]


def test_a_latency_leads_to_the_trace_that_the_collector_has(
    server: Server, collector: Collector
) -> None:
    infer(server)

    exemplar = eventually(lambda: exemplars(server), 60)[0]

    trace = exemplar.labels["trace_id"]
    span = collector.find(lambda span: span.trace_id == trace and bool(span.attributes), trace)
    assert span.span_id == exemplar.labels["span_id"]
    assert exemplar.value == pytest.approx((span.ended_ns - span.begun_ns) / 1e9, rel=1e-3)


def names(text: str) -> list[str]:
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return [line.partition(" ")[0].partition("{")[0] for line in lines]


@pytest.mark.smoke
def test_the_forms_have_the_same_names_and_only_who_asks_gets_the_other(server: Server) -> None:
    infer(server)

    def pages() -> list[tuple[str, str]]:
        """Return both; what has begun or ended between them is on one of them alone."""
        both = [page(server, accept) for accept in ("*/*", _ACCEPT)]
        return both if names(both[0][1]) == names(both[1][1]) else []

    (plain_type, plain), (form_type, form) = eventually(pages, 60)

    assert "text/plain; charset=utf-8" == plain_type
    assert "application/openmetrics-text; version=1.0.0; charset=utf-8" == form_type
    assert "# EOF" not in plain
    assert form.endswith("\n# EOF\n")
    assert list(text_string_to_metric_families(form))


def test_a_killed_tracer_leaves_the_page_without_exemplars_and_comes_back(server: Server) -> None:
    (pid,) = server.pids()["tracer"]
    os.kill(pid, signal.SIGKILL)

    assert page(server, _ACCEPT)[1].endswith("# EOF\n")
    eventually(lambda: server.pids().get("tracer", [pid]) != [pid], 60)

    def has_any() -> bool:
        infer(server)
        return bool(exemplars(server))

    eventually(has_any, 60)


@pytest.fixture
def ask(server: Server, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Ask a Prometheus that keeps exemplars and reads the server each second."""
    program = find_tool("prometheus")
    target = f"127.0.0.1:{server.metrics_port}"
    jobs = [{"job_name": "zmqtriton", "static_configs": [{"targets": [target]}]}]
    configuration = {"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}
    (tmp_path / "prometheus.yml").write_text(json.dumps(configuration))
    [port] = free_ports(1)
    command = [program, "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    command.append("--enable-feature=exemplar-storage")

    def query(path: str, **arguments: str) -> Any:
        url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except OSError:
            return []  # it is starting

    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        try:
            yield query
        finally:
            process.terminate()


def test_a_real_prometheus_answers_which_trace_a_bucket_leads_to(
    server: Server, ask: Callable[..., Any], collector: Collector
) -> None:
    def kept() -> list[Any]:
        infer(server)
        times = {"start": "0", "end": "4102444800"}
        rows = ask("query_exemplars", query=f'{_TIMES}_bucket{{model="identity_fp32"}}', **times)
        return [exemplar for row in rows for exemplar in row["exemplars"]]

    trace = eventually(kept, 90)[-1]["labels"]["trace_id"]

    collector.find(lambda span: span.trace_id == trace, trace)
