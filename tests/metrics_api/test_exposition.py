from __future__ import annotations

import re
from typing import Any

from zmqtriton_frontends.metrics_api.exposition import FAILURE_REASONS, render

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
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            found[match[1], match[2]] = int(match[3])
    return found


def test_each_counter_has_tritons_name_and_the_brokers_value() -> None:
    labels = 'model="m",version="1"'

    found = samples(render([stat()]))

    assert {name: value for (name, of), value in found.items() if of == labels} == {
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


def test_all_reasons_of_failure_are_there_from_the_start() -> None:
    found = samples(render([stat(zmqtriton={})]))

    reasons = {of for name, of in found if name == "nv_inference_request_failure"}
    assert reasons == {f'model="m",reason="{r}",version="1"' for r in FAILURE_REASONS}


def test_failures_are_counted_by_reason() -> None:
    found = samples(render([stat()]))

    name = "nv_inference_request_failure"
    assert [
        found[name, f'model="m",reason="{reason}",version="1"'] for reason in FAILURE_REASONS
    ] == [4, 3, 2, 0]


def test_each_family_is_described_once_and_before_its_samples() -> None:
    lines = render([stat("a"), stat("b")]).splitlines()

    described = [line.split(" ")[2] for line in lines if line.startswith("# TYPE")]
    assert len(described) == len(set(described))
    for name in described:
        own = [line for line in lines if re.search(rf"^(# (HELP|TYPE) )?{name}[ {{]", line)]
        assert [line[:6] for line in own[:2]] == ["# HELP", "# TYPE"]
        start = lines.index(own[0])
        assert lines[start : start + len(own)] == own


def test_latency_counters_may_be_turned_off() -> None:
    text = render([stat()], has_latencies=False)

    assert "_duration_us" not in text
    assert "nv_inference_count" in text


def test_a_name_cannot_break_out_of_its_label() -> None:
    text = render([stat('a"} 1\nb\\')])

    assert 'model="a\\"} 1\\nb\\\\"' in text
    assert len(samples(text)) == 13


def test_without_models_only_the_descriptions_are_left() -> None:
    text = render([])

    assert samples(text) == {}
    assert text.endswith("\n")
