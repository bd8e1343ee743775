"""The figures of a row, from those of the client processes and of the server."""

from __future__ import annotations

from typing import Any

from zmqtriton_extras.bench.command import ServerStatistics
from zmqtriton_extras.bench.results import Measurement, Reading, make_row, server_totals
from zmqtriton_standard.ctl.http_service import HttpService


def report(**figures: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {"seconds": 2.0, "latencies": [], "first": [], "between": []}
    return usual | {"failures": {}, "client_cores": 0.1} | figures


def statistics(requests: int, queue_ns: int) -> dict[str, Any]:
    part = {"count": requests, "ns": queue_ns}
    compute = {f"compute_{step}": part for step in ("input", "infer", "output")}
    statistics = {"success": part, "queue": part, **compute}
    version = {"inference_count": requests, "execution_count": requests // 2}
    return {"model_stats": [{**version, "inference_stats": statistics}]}


def test_the_reports_of_all_processes_become_one_row() -> None:
    measured = Measurement.merge(
        [
            report(latencies=[1000, 3000], client_cores=0.5),
            report(latencies=[2000], failures={"no": 1}, seconds=1.9),
        ]
    )

    row = make_row(4, 0, measured, None, None)

    assert tuple(row[key] for key in ("concurrency", "requests", "failed", "failures")) == (
        4,
        4,
        1,
        {"no": 1},
    )
    assert tuple(
        row[key] for key in ("requests_per_s", "mean_ms", "p50_ms", "p90_ms", "p99_ms")
    ) == (1.5, 2.0, 2.0, 3.0, 3.0)
    assert row["client_cores"] == 0.5
    assert row["queue_ms"] is row["batch_size"] is None
    assert "first_response_ms" not in row


def test_the_servers_part_is_what_was_added_meanwhile() -> None:
    before, after = (
        Reading(
            server_totals(statistics(count, ns)), {"step": server_totals(statistics(count, ns))}
        )
        for count, ns in ((10, 1_000_000), (20, 21_000_000))
    )

    row = make_row(1, 0, Measurement.merge([report(latencies=[1])]), before, after)

    for figures in (row, row["steps"]["step"]):
        keys = ("queue_ms", "compute_ms", "batch_size")
        assert tuple(figures[key] for key in keys) == (2.0, 6.0, 2.0)


def test_a_stream_has_the_times_of_its_responses() -> None:
    measured = Measurement.merge([report(latencies=[9000], first=[2000], between=[3000, 4000])])

    row = make_row(1, 0, measured, None, None)

    assert (row["first_response_ms"], row["between_responses_ms"]) == (2.0, 3.0)
    assert (row["mean_first_ms"], row["responses"]) == (2.0, 3.0)


def test_nothing_answered_is_no_error() -> None:
    row = make_row(1, 0, Measurement.merge([report(failures={"no": 3})]), None, None)

    assert (row["requests_per_s"], row["mean_ms"], row["p99_ms"]) == (0, None, None)


def test_a_server_that_has_gone_has_no_statistics() -> None:
    gone = HttpService("http://127.0.0.1:1", {}, 10.0)

    assert ServerStatistics(gone, "/v2/models/m").read() is None
