"""State, history and log of a real server over HTTP."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from tests.support.server import Server, ask_add_sub
from tests.support.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.server(models=["add_sub"])]


def get(server: Server, path: str) -> Any:
    with urllib.request.urlopen(f"{server.url}/v2/zmqtriton/{path}", timeout=60) as answer:
        return json.load(answer)


def columns(server: Server) -> dict[str, list[Any]]:
    return get(server, "history")["models"].get("add_sub:1", {})


def test_the_history_is_kept_when_nobody_looks(server: Server) -> None:
    def sampled() -> list[int]:
        """Return the places of samples with a request, in each of which instances are known."""
        assert 200 == ask_add_sub(server)
        own = columns(server)
        pairs = zip(own.get("requests_per_s", ()), own.get("instances", ()), strict=True)
        return [place for place, pair in enumerate(pairs) if all(pair)]

    place, *_ = eventually(sampled, 30, "a sample of it")

    document = get(server, "history")
    of_model = document["models"]["add_sub:1"]
    assert of_model["latency_p50_ms"][place] > 0
    assert (1, 1) == (of_model["batch"][place], of_model["instances"][place])
    assert of_model["memory_bytes"][place] > 1 << 20
    assert (
        len(document["times"]) == len(of_model["pending"]) == len(document["server"]["cpu_percent"])
    )


def test_what_instances_cost_is_measured_of_a_model_that_somebody_looks_at(server: Server) -> None:
    def measured() -> Any:
        rows = get(server, "status?memory_of=add_sub")["processes"]
        return [row for row in rows if row.get("pss_bytes")]

    [row] = eventually(measured, 30, "its memory")

    assert "add_sub" == row["model"]
    assert row["private_bytes"] < row["pss_bytes"] < row["memory_bytes"]
    assert row["pss_bytes"] < row["private_bytes"] + row["shared_bytes"]


def test_the_state_of_the_server_and_a_restart(server: Server) -> None:
    request = urllib.request.Request(f"{server.url}/v2/models/add_sub/restart", method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert {"model": "add_sub", "ended": 1} == json.load(answer)

    def restarted() -> Any:
        rows = get(server, "status")["processes"]
        return [row for row in rows if row["role"] == "stub" and row["restarts"] == 1]

    [stub] = eventually(restarted, 30, "another process")
    document = get(server, "status")
    assert "add_sub" == stub["model"]
    assert "restarted by an operator" in stub["last_reason"]
    assert document["server"]["may_restart"]
    lines = get(server, "logs?model=add_sub")["lines"]
    assert any("restarted by an operator" in line["text"] for line in lines)
