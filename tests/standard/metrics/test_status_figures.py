"""Figures on the page of metrics of services, clients, turns of loops, readiness and troubles."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.floor.reasons import because
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.reasons import Kind, Reason
from zmqtriton_floor.wire import VersionInfo
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_standard.metrics import latencies, readiness, services
from zmqtriton_standard.metrics.clients import render
from zmqtriton_standard.metrics.readiness import render_troubles


def test_all_are_asked_before_one_has_answered() -> None:
    calls: list[str] = []

    async def one() -> str:
        calls.append("one")
        while len(calls) < 2:
            await asyncio.sleep(0)
        return "1\n"

    assert "1\n1\n" == asyncio.run(services.render([one, one]))


def test_who_does_not_answer_is_left_out() -> None:
    async def fail(error: Exception) -> str:
        raise error

    async def here() -> str:
        return "1\n"

    assert "1\n" == asyncio.run(
        services.render(
            [lambda: fail(ConnectionRefusedError()), lambda: fail(Unavailable("away")), here]
        )
    )


MEMORY = {"requests_bytes": 1, "answers_bytes": 2, "requests_refused": 3, "answers_refused": 4}


def row(role: str, counter: str, label: str, count: int) -> dict[str, Any]:
    return {"role": role, "counter": counter, "label": label, "count": count}


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_processes_of_a_role_are_added_up() -> None:
    process = {"role": "http", "client_memory": MEMORY, "connections": 3}
    text = render({"processes": [process, process, {"role": "broker"}]}, {})

    assert [
        'zmqtriton_client_memory_bytes{kind="requests",role="http"} 2',
        'zmqtriton_client_memory_bytes{kind="answers",role="http"} 4',
        'zmqtriton_client_memory_refused_total{kind="requests",role="http"} 6',
        'zmqtriton_client_memory_refused_total{kind="answers",role="http"} 8',
        'zmqtriton_open_connections{role="http"} 6',
    ] == lines(text)


def test_counters_have_the_labels_that_tell_something() -> None:
    rows = [
        row("http", "connections", "", 7),
        row("grpc", "connections", "", 1),
        row("http", "answers", "200", 40),
        row("http", "answers", "404", 2),
        row("grpc", "calls", "OK", 6),
        row("http", "access_refusals", "unknown", 3),
        row("http", "of a later version", "x", 1),
    ]

    text = render({"processes": [], "clients": rows}, {"missing": 5})

    assert [
        'zmqtriton_connections_total{role="http"} 7',
        'zmqtriton_connections_total{role="grpc"} 1',
        'zmqtriton_http_responses_total{code="200"} 40',
        'zmqtriton_http_responses_total{code="404"} 2',
        'zmqtriton_grpc_responses_total{code="OK"} 6',
        'zmqtriton_access_refused_total{reason="unknown",role="http"} 3',
        'zmqtriton_access_refused_total{reason="missing",role="metrics"} 5',
    ] == lines(text)


def test_no_family_has_the_name_of_a_counter_without_its_ending() -> None:
    process = {"role": "http", "client_memory": MEMORY, "connections": 3}
    text = render({"processes": [process], "clients": [row("http", "connections", "", 7)]}, {})

    # OpenMetrics, as the parser reads, has no `_total` in names of families
    names = [family.name for family in text_string_to_metric_families(text)]

    assert sorted(set(names)) == sorted(names)


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

    expected = {
        'zmqtriton_loop_turn_seconds_max{process="http"} 0.3',
        'zmqtriton_loop_turn_seconds_max{process="broker"} 0',
        'zmqtriton_loop_turn_seconds_bucket{le="0.25",process="http"} 3',
        'zmqtriton_loop_turn_seconds_bucket{le="0.5",process="http"} 4',
        'zmqtriton_loop_turn_seconds_bucket{le="+Inf",process="http"} 4',
        'zmqtriton_loop_turn_seconds_sum{process="http"} 0.36',
        'zmqtriton_loop_turn_seconds_count{process="http"} 4',
    }
    assert expected <= {*lines}
    assert not any("stub" in line for line in lines)


def news(name: str, **changed: Any) -> VersionInfo:
    config = json.dumps({"name": name, "metric_tags": {"team": "a"}})
    return VersionInfo(1, name, 1, "READY", None, 1, config, b"")._replace(**changed)


def readiness_lines(*messages: VersionInfo) -> list[str]:
    gateway: Any = SimpleNamespace(catalogue=Catalogue())
    for message in messages:
        gateway.catalogue.update(message)
    return [line for line in readiness.render(gateway).splitlines() if line[0] != "#"]


def of(model: str) -> str:
    return f'zmqtriton_model_ready{{_team="a",model="{model}",version="1"}}'


def test_a_model_that_cannot_be_read_is_not_ready_and_has_no_version() -> None:
    unread = news("odd", generation=0, version=0, state="UNAVAILABLE", reason=because("bad config"))

    expected = ["zmqtriton_ready 0", 'zmqtriton_model_ready{model="odd",version=""} 0']
    assert expected == readiness_lines(unread)


def test_what_need_not_serve_is_not_told_of_but_what_drains_is() -> None:
    rows = readiness_lines(
        news("asleep", generation=0, state="UNAVAILABLE", is_on_demand=1),
        news("draining", is_draining=1),
        news(
            "unloaded",
            generation=0,
            state="UNAVAILABLE",
            reason=Reason.of(Kind.UNLOADED, "unloaded"),
        ),
    )

    assert ["zmqtriton_ready 1", f"{of('draining')} 0"] == rows


TAGGED = {"metric_tags": {"team": "a"}}
KILLED = Reason.of(Kind.KILLED, "killed", signal="SIGKILL")
GIVEN_UP = Reason.of(Kind.GIVEN_UP, "given up", KILLED, instance="m_0", deaths=5, retry_after_s=30)


def stub(model: str, *reasons: Reason) -> dict[str, Any]:
    why = {"why": reasons[0].document()} if reasons else {}
    return {"role": "stub", "model": model, "version": 1, **why}


def trouble_lines(status: dict[str, Any]) -> list[str]:
    text = render_troubles(status, lambda model, version: TAGGED if version else {})
    return [line for line in text.splitlines() if line[0] != "#"]


def test_versions_loads_and_instances_have_the_innermost_cause() -> None:
    rows = [{"model": "m", "version": "2", "what": "load", "cause": "CONFIG_WRONG"}]
    processes = [
        {"role": "broker", "why": KILLED.document()},
        stub("m", GIVEN_UP),
        stub("m", KILLED),
        stub("well"),
    ]

    first, second = trouble_lines({"troubles": rows, "processes": processes})
    name = "zmqtriton_model_trouble_info"
    assert f'{name}{{_team="a",cause="config_wrong",model="m",version="2",what="load"}} 1' == first
    assert f'{name}{{_team="a",cause="killed",model="m",version="1",what="instance"}} 1' == second


def test_a_model_that_cannot_be_read_has_no_version() -> None:
    row = {"model": "m", "version": "", "what": "version", "cause": "CONFIG_UNREADABLE"}

    [line] = trouble_lines({"troubles": [row], "processes": []})

    assert line.endswith('{cause="config_unreadable",model="m",version="",what="version"} 1')
