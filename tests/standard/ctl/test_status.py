"""The table of processes in the status of a server that a test plays."""

from __future__ import annotations

from tests.standard.ctl.fake_server import STATUS, FakeServer, run


def test_the_status_tells_an_execution_that_lasts(server: FakeServer) -> None:
    (stub,) = (one for one in server.answers["status"]["processes"] if one["role"] == "stub")
    stub["executing_s"] = 100.5

    assert "READY, executing 1m40s" in run("status").output
    stub["executing_s"] = 4.5
    assert "executing" not in run("status").output


def test_the_status_has_the_models_that_requests_load(server: FakeServer) -> None:
    rows = dict.fromkeys(("bytes", "loads", "failures", "idle", "memory", "sleeps"), 0)
    model = {"model": "lazy", **rows, "event": "loaded for a request", "seconds_ago": 7.4}
    on_demand = {"waiting": {"lazy": 3}, "models": [model], "gpus": [], "budget_bytes": 0}
    server.answers["status"] = {**STATUS, "on_demand": on_demand}

    assert "\nlazy\t-\t0\t0\t0\t0\t0\t3\tloaded for a request\t7s\n" in run("status").output
