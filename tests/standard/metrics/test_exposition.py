from __future__ import annotations

import re
from typing import Any

import pytest

from zmqtriton_standard.metrics.exposition import FAILURE_REASONS, render

SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\.)*",?)+)\} (\d+)')


def stat(name: str = "m", version: str = "1", **more: Any) -> dict[str, Any]:
    keys = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
    durations = {key: {"count": i + 1, "ns": (i + 1) * 1_000_999} for i, key in enumerate(keys)}
    return {
        "name": name,
        "version": version,
        "inference_count": 20,
        "execution_count": 10,
        "inference_stats": durations,
        "zmqtriton": {"failures": {"REJECTED": 4, "CANCELED": 3, "BACKEND": 2}, "pending": 7},
        **more,
    }


def samples(text: str) -> dict[tuple[str, str], int]:
    values = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            values[match[1], match[2]] = int(match[3])
    return values


@pytest.mark.row("nv_inference_request_success", "nv_inference_count", "nv_inference_exec_count")
def test_each_counter_has_tritons_name_and_the_brokers_value() -> None:
    labels = 'model="m",version="1"'

    values = samples(render([stat()]))

    assert {name: value for (name, of), value in values.items() if of == labels} == {
        "nv_inference_request_success": 1,
        "nv_inference_count": 20,
        "nv_inference_exec_count": 10,
        "nv_inference_request_duration_us": 1000,
        "nv_inference_queue_duration_us": 3002,
        "nv_inference_compute_input_duration_us": 4003,
        "nv_inference_compute_infer_duration_us": 5004,
        "nv_inference_compute_output_duration_us": 6005,
        "nv_inference_pending_request_count": 7,
    }


@pytest.mark.row("nv_inference_request_failure")
def test_failures_are_counted_by_reason() -> None:
    values = samples(render([stat()]))

    name = "nv_inference_request_failure"
    assert [
        values[name, f'model="m",reason="{reason}",version="1"'] for reason in FAILURE_REASONS
    ] == [4, 3, 2, 0]


@pytest.mark.row("E46")
def test_tags_of_a_model_are_labels_in_the_order_of_their_names() -> None:
    config = {"metric_tags": {"team": 'a"b', "abc": "x"}}

    lines = render([stat()], config_of=lambda name, version: config).splitlines()

    labels = '_abc="x",_team="a\\"b",model="m"'
    assert f'nv_inference_count{{{labels},version="1"}} 20' in lines
    assert f'nv_inference_request_failure{{{labels},reason="CANCELED",version="1"}} 3' in lines


_CACHED = {"response_cache": {"enable": True}}


def of_cache(model: str = "m") -> dict[str, int]:
    """Return what is said of the caches of `m`, which has one, and `n`."""
    stats = [stat("m"), stat("n")]
    for one in stats:
        one["inference_stats"] |= {
            "cache_hit": {"count": 5, "ns": 7_999},
            "cache_miss": {"count": 6, "ns": 8_000},
        }
    page = render(stats, config_of=lambda name, version: _CACHED if name == "m" else {})
    of_model = f'model="{model}",version="1"'
    named = {name: value for (name, of), value in samples(page).items() if of == of_model}
    return {name: value for name, value in named.items() if name.startswith("nv_cache")}


@pytest.mark.row("nv_cache_num_hits_per_model", "nv_cache_num_misses_per_model")
def test_only_models_with_a_cache_have_series_of_it() -> None:
    counts = {"nv_cache_num_hits_per_model": 5, "nv_cache_num_misses_per_model": 6}

    assert counts.items() <= of_cache("m").items()
    assert {} == of_cache("n")


@pytest.mark.row("nv_cache_hit_duration_per_model", "nv_cache_miss_duration_per_model")
def test_what_looking_up_and_keeping_took_is_told_in_microseconds() -> None:
    durations = {"nv_cache_hit_duration_per_model": 7, "nv_cache_miss_duration_per_model": 8}

    assert durations.items() <= of_cache().items()


def latency(what: str) -> int:
    return samples(render([stat()]))[f"nv_inference_{what}_duration_us", 'model="m",version="1"']


@pytest.mark.row("nv_inference_request_duration_us", "nv_inference_queue_duration_us")
def test_what_clients_waited_for_is_told_in_microseconds() -> None:
    assert (1000, 3002) == (latency("request"), latency("queue"))


@pytest.mark.row(
    "nv_inference_compute_input_duration_us",
    "nv_inference_compute_infer_duration_us",
    "nv_inference_compute_output_duration_us",
)
def test_what_executions_took_is_told_in_microseconds() -> None:
    assert (4003, 5004, 6005) == tuple(
        latency(f"compute_{w}") for w in ("input", "infer", "output")
    )


@pytest.mark.row("nv_inference_pending_request_count")
def test_what_waits_is_a_gauge_that_is_always_there() -> None:
    lines = render([stat()], has_latencies=False).splitlines()

    assert 'nv_inference_pending_request_count{model="m",version="1"} 7' in lines
    assert "# TYPE nv_inference_pending_request_count gauge" in lines


@pytest.mark.row("nv_model_load_duration_secs")
def test_how_long_a_load_took_is_told_where_it_is_known() -> None:
    page = render([stat("m", zmqtriton={"load_s": 1.25}), stat("n")])

    lines = [line for line in page.splitlines() if "load_duration" in line and line[0] != "#"]
    assert ['nv_model_load_duration_secs{model="m",version="1"} 1.25'] == lines
