"""Prints the dashboard for Grafana as JSON, for deploy/grafana/zmqtriton.json.

The first rows have the panels to watch; the last row has a panel for each other metric of
docs/metrics.md. A panel has the description of its first metric on the page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from tools.metrics_table import Metric, names_in, read_table

#: Grafana 10.4; later ones convert it when they load it.
SCHEMA_VERSION = 39
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24
_HEIGHT = 8
#: In expressions: the series of the servers, and of the models, that are chosen.
_SELECTORS = {"@server": 'instance=~"$instance"', "@model": 'instance=~"$instance",model=~"$model"'}
_OF_MODEL = "{{instance}} {{model}}/{{version}}"


class Panel(NamedTuple):
    title: str
    #: Expressions, each with the name of its series.
    targets: dict[str, str]
    #: As Grafana calls it; "short" is a plain number.
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    #: From here on it is red, if that is known.
    red_from: float | None = None


def _rate(name: str, where: str = "@model") -> str:
    return f"rate({name}{{{where}}}[$__rate_interval])"


def _mean(duration: str, scale: str = "1e6") -> str:
    """Return the mean duration of successful requests as PromQL, in seconds."""
    of = _rate(f"nv_inference_{duration}_duration_us")
    return f"{of} / {scale} / ({_rate('nv_inference_request_success')} > 0)"


def _quantile(value: str) -> str:
    """Return a quantile in seconds as PromQL: exact over the last minute, or an estimate."""
    exact = f'nv_inference_request_summary_us{{@model,quantile="{value}"}}'
    buckets = _rate("zmqtriton_request_duration_seconds_bucket")
    return f"max without (quantile) ({exact}) / 1e6 or histogram_quantile({value}, {buckets})"


_FIRST_RESPONSES = _rate("nv_inference_first_response_histogram_ms_bucket")

ROWS: dict[str, list[Panel]] = {
    "Overview": [
        Panel("Servers ready", {"ready": "sum(zmqtriton_ready{@server})"}, kind="stat", width=4),
        Panel(
            "Models not ready",
            {"not ready": "count(zmqtriton_model_ready{@model} == 0) or vector(0)"},
            kind="stat",
            width=4,
            red_from=1,
        ),
        Panel(
            "Requests",
            {"answered": f"sum({_rate('nv_inference_request_success')})"},
            "reqps",
            kind="stat",
            width=4,
        ),
        Panel(
            "Failures",
            {
                "failed": f"sum({_rate('nv_inference_request_failure')}) / "
                f"(sum({_rate('nv_inference_request_success')}) + "
                f"sum({_rate('nv_inference_request_failure')}) > 0)"
            },
            "percentunit",
            kind="stat",
            width=4,
            red_from=0.05,
        ),
        Panel(
            "Waiting",
            {"waiting": "sum(nv_inference_pending_request_count{@model})"},
            kind="stat",
            width=4,
        ),
        Panel(
            "Restarts in the time shown",
            {"restarts": "sum(increase(zmqtriton_instance_restarts_total{@model}[$__range]))"},
            kind="stat",
            width=4,
            red_from=1,
        ),
        Panel(
            "Readiness of models",
            {_OF_MODEL: "zmqtriton_model_ready{@model}"},
            kind="state-timeline",
            width=24,
        ),
    ],
    "Requests": [
        Panel("Answered", {_OF_MODEL: _rate("nv_inference_request_success")}, "reqps", width=12),
        Panel(
            "Failed",
            {f"{_OF_MODEL} {{{{reason}}}}": f"{_rate('nv_inference_request_failure')} > 0"},
            "reqps",
            width=12,
        ),
        Panel("Latency, mean", {_OF_MODEL: _mean("request")}, "s"),
        Panel("Latency, p50", {_OF_MODEL: _quantile("0.5")}, "s"),
        Panel("Latency, p99", {_OF_MODEL: _quantile("0.99")}, "s"),
        Panel(
            "Latency of all servers together, p99",
            {
                "{{model}}": "histogram_quantile(0.99, sum by (model, le) ("
                f"{_rate('zmqtriton_request_duration_seconds_bucket')}))"
            },
            "s",
        ),
        Panel(
            "First response, p99",
            {_OF_MODEL: f"histogram_quantile(0.99, {_FIRST_RESPONSES}) / 1e3"},
            "s",
        ),
        Panel(
            "Answers over HTTP",
            {"{{instance}} {{code}}": _rate("zmqtriton_http_responses_total", "@server")},
            "reqps",
        ),
        Panel(
            "Answers over gRPC",
            {"{{instance}} {{code}}": _rate("zmqtriton_grpc_responses_total", "@server")},
            "reqps",
        ),
    ],
    "Queue and batches": [
        Panel("Waiting requests", {_OF_MODEL: "nv_inference_pending_request_count{@model}"}),
        Panel("Time in the queue, mean", {_OF_MODEL: _mean("queue")}, "s"),
        Panel(
            "Batch size, mean",
            {
                _OF_MODEL: f"{_rate('nv_inference_count')} / "
                f"({_rate('nv_inference_exec_count')} > 0)"
            },
        ),
        Panel("Executing requests", {_OF_MODEL: "zmqtriton_executing_count{@model}"}),
        Panel("Time in execute, mean", {_OF_MODEL: _mean("compute_infer")}, "s"),
        Panel(
            "Deadlines that passed",
            {_OF_MODEL: _rate("zmqtriton_deadlines_exceeded_total")},
            "reqps",
        ),
    ],
    "Instances": [
        Panel("Instances that can execute", {_OF_MODEL: "zmqtriton_instances{@model}"}),
        Panel(
            "Busy",
            {
                _OF_MODEL: f"{_rate('zmqtriton_instance_busy_seconds_total')} "
                "/ zmqtriton_instances{@model}"
            },
            "percentunit",
        ),
        Panel(
            "Restarts",
            {
                _OF_MODEL: "increase(zmqtriton_instance_restarts_total{@model}[$__rate_interval])",
                "{{instance}} {{role}}": "increase(zmqtriton_process_restarts_total"
                '{@server,role!="stub"}[$__rate_interval])',
            },
        ),
    ],
    "Memory and load of the models": [
        Panel(
            "Memory of their processes",
            {_OF_MODEL: "zmqtriton_model_memory_bytes{@model}"},
            "bytes",
        ),
        Panel("Cores in use", {_OF_MODEL: _rate("zmqtriton_model_cpu_seconds_total")}),
        Panel(
            "Refused",
            {f"{_OF_MODEL} {{{{reason}}}}": _rate("zmqtriton_model_refused_requests_total")},
            "reqps",
        ),
    ],
    "Memory and load of the server": [
        Panel(
            "Memory of the machine",
            {
                "{{instance}} used": "nv_cpu_memory_used_bytes{@server}",
                "{{instance}} total": "nv_cpu_memory_total_bytes{@server}",
            },
            "bytes",
        ),
        Panel("Processors", {"{{instance}}": "nv_cpu_utilization{@server}"}, "percentunit"),
        Panel(
            "Shared memory for tensors",
            {"{{instance}} {{role}}": "zmqtriton_shared_memory_bytes{@server}"},
            "bytes",
        ),
        Panel(
            "Memory for clients",
            {"{{instance}} {{role}} {{kind}}": "zmqtriton_client_memory_bytes{@server}"},
            "bytes",
        ),
        Panel(
            "Quotas in use",
            {
                "{{instance}} {{model}} {{quota}}": "zmqtriton_quota_used{@model} / "
                "zmqtriton_quota_limit{@model}"
            },
            "percentunit",
        ),
        Panel(
            "Refused",
            {
                "{{instance}}": _rate("zmqtriton_refused_requests_total", "@server"),
                "{{instance}} {{role}} {{kind}}": _rate(
                    "zmqtriton_client_memory_refused_total", "@server"
                ),
            },
            "reqps",
        ),
    ],
    "GPUs": [
        Panel(
            "Utilization",
            {"{{instance}} {{gpu_uuid}}": "nv_gpu_utilization{@server}"},
            "percentunit",
        ),
        Panel(
            "Memory",
            {
                "{{instance}} {{gpu_uuid}} used": "nv_gpu_memory_used_bytes{@server}",
                "{{instance}} {{gpu_uuid}} total": "nv_gpu_memory_total_bytes{@server}",
            },
            "bytes",
        ),
        Panel(
            "Power",
            {
                "{{instance}} {{gpu_uuid}}": "nv_gpu_power_usage{@server}",
                "{{instance}} {{gpu_uuid}} limit": "nv_gpu_power_limit{@server}",
            },
            "watt",
        ),
    ],
}
#: Said by a better one that a panel above shows, or always 0.
_LEFT_OUT = ("_summary_", "_duration_us", "pinned_memory", "busy_ratio")
_REST = "All other metrics"


def build() -> dict[str, Any]:
    """Return the dashboard."""
    table = read_table()
    rows = {**ROWS, _REST: list(_other_panels(table))}
    return {
        "title": "zmqtriton",
        "uid": "zmqtriton",
        "description": "Servers and their models. Latencies are "
        "estimates of a histogram, and exact with --metrics-config=summary_latencies=true.",
        "tags": ["zmqtriton", "inference"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": list(_variables())},
        "panels": list(_place(rows, table)),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    queries = {
        "instance": "label_values(zmqtriton_ready, instance)",
        "model": 'label_values(zmqtriton_model_ready{instance=~"$instance"}, model)',
    }
    for name, query in queries.items():
        yield {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": _DATASOURCE,
            "definition": query,
            "query": {"query": query, "refId": name},
            "refresh": 2,  # when the time changes, since models come and go
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        }


def _other_panels(table: dict[str, Metric]) -> Iterator[Panel]:
    shown = {
        name
        for panels in ROWS.values()
        for panel in panels
        for expression in panel.targets.values()
        for name in names_in(expression, table)
    }
    for metric in table.values():
        if metric.name not in shown and not any(part in metric.name for part in _LEFT_OUT):
            where = "@model" if metric.is_of_models else "@server"
            title, expression = metric.name, f"{metric.name}{{{where}}}"
            if metric.kind == "counter":
                expression = _rate(metric.name, where)
            elif metric.kind == "histogram":
                title = f"{metric.name}, p99"
                expression = f"histogram_quantile(0.99, {_rate(f'{metric.name}_bucket', where)})"
            unit = "bytes" if metric.name.endswith("_bytes") else "short"
            yield Panel(title, {"__auto": expression}, unit)


def _place(rows: dict[str, list[Panel]], table: dict[str, Metric]) -> Iterator[dict[str, Any]]:
    """Yield rows and panels with their positions; a collapsed row contains its panels."""
    number, y = 0, 0
    for title, panels in rows.items():
        number += 1
        header = {"id": number, "type": "row", "title": title, "collapsed": title == _REST}
        header["gridPos"] = {"h": 1, "w": _WIDTH, "x": 0, "y": y}
        y += 1
        placed = []
        x, height = 0, 0
        for panel in panels:
            if x + panel.width > _WIDTH:
                x, y = 0, y + height
            number += 1
            height = _HEIGHT // 2 if panel.kind == "stat" else _HEIGHT
            position = {"h": height, "w": panel.width, "x": x, "y": y}
            placed.append({"id": number, "gridPos": position, **_describe(panel, table)})
            x += panel.width
        y += height
        header["panels"] = placed if header["collapsed"] else []
        yield header
        if not header["collapsed"]:
            yield from placed


def _describe(panel: Panel, table: dict[str, Metric]) -> dict[str, Any]:
    names = [name for text in panel.targets.values() for name in names_in(text, table)]
    return {
        "title": panel.title,
        "type": panel.kind,
        "description": table[names[0]].meaning,
        "datasource": _DATASOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _DATASOURCE,
                "expr": _fill(expression),
                "legendFormat": legend,
                **({"instant": True} if panel.kind == "stat" else {"range": True}),
            }
            for index, (legend, expression) in enumerate(panel.targets.items())
        ],
        "fieldConfig": {"defaults": _field_defaults(panel), "overrides": []},
        "options": _options(panel),
    }


def _fill(expression: str) -> str:
    for short, selector in _SELECTORS.items():
        expression = expression.replace(short, selector)
    return expression


def _field_defaults(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.kind == "state-timeline":
        texts = {
            "0": {"text": "not ready", "color": "red"},
            "1": {"text": "ready", "color": "green"},
        }
        return {**defaults, "mappings": [{"type": "value", "options": texts}]}
    if panel.kind == "timeseries":
        return {**defaults, "min": 0, "custom": {"fillOpacity": 10, "showPoints": "never"}}
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red_from is not None:
        steps.append({"color": "red", "value": panel.red_from})
    return {**defaults, "thresholds": {"mode": "absolute", "steps": steps}}


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    if panel.kind == "state-timeline":
        return {"showValue": "never", "mergeValues": True, "legend": {"showLegend": False}}
    return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}


def text() -> str:
    return json.dumps(build(), indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
