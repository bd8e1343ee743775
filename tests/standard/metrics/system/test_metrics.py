"""The metrics page of a real server: latencies as histogram and summary, and what is our own."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request

import pytest

from tests.support.scraping import read_series
from tests.support.server import Copy, Server
from tests.support.waiting import eventually

_BUCKETS = """
model_metrics { metric_control {
  metric_identifier { family: "nv_inference_first_response_histogram_ms" }
  histogram_options { buckets: [ 30, 60000 ] }
} }
"""
_FIRST = "nv_inference_first_response_histogram_ms"


FRONTENDS = ("metrics",)
#: Copies of `tokens`, each of which one test alone asks.
_OWN = ("timed", "summed")
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[*(Copy("tokens", name, _BUCKETS) for name in ("tokens", *_OWN)), "add_sub"],
        options=[
            "--metrics-config=histogram_latencies=true",
            "--metrics-config=summary_latencies=true",
            "--metrics-config=summary_quantiles=0.25:0.01,0.75:0.01",
            f"--metrics-interval-ms={3_600_000}",
        ],
        frontends=FRONTENDS,
    ),
]


def stream(server: Server, count: int, delay_us: int, model: str = "tokens") -> int:
    """Return how many responses there were."""
    document = json.dumps({"COUNT": count, "DELAY_US": delay_us}).encode()
    url = f"{server.url}/v2/models/{model}/generate_stream"
    with urllib.request.urlopen(url, document, timeout=60) as answer:
        return answer.read().decode().count("data: ")


@pytest.mark.row("E47", "nv_inference_first_response_histogram_ms", "--metrics-config")
def test_first_responses_are_timed_in_the_buckets_that_the_model_wants(server: Server) -> None:
    of = 'model="timed",version="1"'
    stream(server, 0, 0, "timed")  # without a response there is no first one
    before = read_series(server)

    assert stream(server, 20, 40_000, "timed") == 20

    after = read_series(server)
    name = f"{_FIRST}_count{{{of}}}"
    assert (before[name], after[name]) == (0, 1)
    buckets = {k: v for k, v in after.items() if k.startswith(f"{_FIRST}_bucket{{{of}")}
    assert buckets == {
        f'{_FIRST}_bucket{{{of},le="30"}}': 0,
        f'{_FIRST}_bucket{{{of},le="60000"}}': 1,
        f'{_FIRST}_bucket{{{of},le="+Inf"}}': 1,
    }
    # Nineteen others came behind the first one, none sooner than 40 ms after the one before. A busy
    # machine may count the first one late, but not by ten of them.
    duration = f"nv_inference_request_duration_us{{{of}}}"
    took_ms = (after[duration] - before[duration]) / 1000
    assert 40 <= after[f"{_FIRST}_sum{{{of}}}"] < took_ms - 9 * 40
    others = [k for k in after if k.startswith(f'{_FIRST}_bucket{{model="add_sub"')]
    assert [k.rpartition('le="')[2] for k in others] == [
        f'{bound}"}}' for bound in ("100", "500", "2000", "5000", "+Inf")
    ]


@pytest.mark.row(
    "nv_inference_request_summary_us", "nv_inference_compute_infer_summary_us", "--metrics-config"
)
def test_summaries_have_the_quantiles_that_were_asked_for(server: Server) -> None:
    of = 'model="summed",version="1"'
    before = read_series(server)

    assert stream(server, 2, 50_000, "summed") == 2

    after = read_series(server)
    for part in ("request", "queue", "compute_input", "compute_infer", "compute_output"):
        name = f"nv_inference_{part}_summary_us"
        assert after[f"{name}_count{{{of}}}"] == before[f"{name}_count{{{of}}}"] + 1
        quantiles = [k.rpartition(",")[2] for k in after if k.startswith(f"{name}{{{of},")]
        assert quantiles == ['quantile="0.25"}', 'quantile="0.75"}']
    whole = "nv_inference_request_summary_us"
    assert after[f"{whole}_sum{{{of}}}"] >= 100_000
    assert after[f'{whole}{{{of},quantile="0.75"}}'] >= 99_000


@pytest.mark.row("--metrics-interval-ms")
def test_shares_are_of_an_interval_that_is_over(server: Server) -> None:
    stream(server, 20, 40_000)

    series = read_series(server)

    of = '{model="tokens",version="1"}'
    assert series[f"zmqtriton_instance_busy_seconds_total{of}"] > 0
    shares = f"zmqtriton_instance_busy_ratio{of}", "nv_cpu_utilization"
    assert [0, 0] == [series[name] for name in shares]
    assert series["nv_cpu_memory_total_bytes"] > series["nv_cpu_memory_used_bytes"] > 0


def test_a_stream_is_executing_until_it_has_ended(server: Server) -> None:
    executing = 'zmqtriton_executing_count{model="tokens",version="1"}'
    endless = json.dumps({"COUNT": 1_000_000, "DELAY_US": 1000}).encode()
    url = f"{server.url}/v2/models/tokens/generate_stream"

    with urllib.request.urlopen(url, endless, timeout=60) as answer:
        answer.readline()
        assert read_series(server)[executing] == 1
    eventually(lambda: read_series(server)[executing] == 0, 30, "its client has left")

    assert stream(server, 3, 0) == 3
    assert read_series(server)[executing] == 0


def test_a_restart_of_an_instance_is_counted(server: Server) -> None:
    restarts = 'zmqtriton_instance_restarts_total{model="add_sub",version="1"}'
    before = read_series(server)
    assert before['zmqtriton_process_restarts_total{role="broker"}'] == 0

    os.kill(server.stub_pids("add_sub")[0], signal.SIGKILL)

    eventually(lambda: read_series(server)[restarts] == before[restarts] + 1, 60)


def test_answers_over_http_and_connections_are_counted(server: Server) -> None:
    def count(code: int) -> float:
        return read_series(server).get(f'zmqtriton_http_responses_total{{code="{code}"}}', 0)

    before, connections = count(404), 'zmqtriton_connections_total{role="http"}'
    made = read_series(server).get(connections, 0)

    for _ in range(3):
        assert 404 == server.status("/nowhere")

    eventually(lambda: before + 3 == count(404), 30, "the answers are counted")
    assert made + 3 <= read_series(server)[connections]
    assert read_series(server)['zmqtriton_open_connections{role="http"}'] >= 0
