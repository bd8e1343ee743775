"""Clients on the page of metrics."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from zmqtriton_standard.metrics.clients import render

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
