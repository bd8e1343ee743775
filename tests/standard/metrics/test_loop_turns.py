"""The turns of loops on the page of metrics."""

from __future__ import annotations

from zmqtriton_standard.metrics import latencies


def test_each_role_has_its_longest_turn_and_a_histogram() -> None:
    status = {
        "processes": [
            {"role": "http", "longest_turn": {"cpu_s": 0.25, "stood_s": 0.02, "locked_s": 0.03}},
            {"role": "http", "longest_turn": None},
            {"role": "broker", "longest_turn": None},
            {"role": "stub"},
        ],
        "turns": [{"role": "http", "counts": [3, 0, 0, 0, 1, 0, 0, 0, 0], "sum_s": 0.36}],
    }

    lines = latencies.render_turns(status).splitlines()

    assert 'zmqtriton_loop_turn_seconds_max{process="http"} 0.3' in lines
    assert 'zmqtriton_loop_turn_seconds_max{process="broker"} 0' in lines
    assert 'zmqtriton_loop_turn_seconds_bucket{le="0.25",process="http"} 3' in lines
    assert 'zmqtriton_loop_turn_seconds_bucket{le="0.5",process="http"} 4' in lines
    assert 'zmqtriton_loop_turn_seconds_bucket{le="+Inf",process="http"} 4' in lines
    assert 'zmqtriton_loop_turn_seconds_sum{process="http"} 0.36' in lines
    assert 'zmqtriton_loop_turn_seconds_count{process="http"} 4' in lines
    assert not any("stub" in line for line in lines)
