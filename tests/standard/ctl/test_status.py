"""The table of processes in the status of a server that a test plays."""

from __future__ import annotations

from tests.standard.ctl.fake_server import FakeServer, run


def test_the_status_tells_an_execution_that_lasts(server: FakeServer) -> None:
    (stub,) = (one for one in server.answers["status"]["processes"] if one["role"] == "stub")
    stub["executing_s"] = 100.5

    assert "READY, executing 1m40s" in run("status").output
    stub["executing_s"] = 4.5
    assert "executing" not in run("status").output
