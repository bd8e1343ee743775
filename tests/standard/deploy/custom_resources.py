"""The fields of resources that operators add to Kubernetes, as far as our files have them.

No package has models of these. A table has the fields of a resource, with their kinds; another
field, a missing one and another kind are faults. A pattern is that of a whole text, a range that of
a number. Those of an InferencePool are all that the definition of `inference.networking.k8s.io/v1`
has in the inference extension 1.x, with its rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

NUMBER_OR_TEXT = (int, str)


class Optional:
    """A field that may be missing."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind


def names_of(kind: Any) -> dict[Any, Any]:
    """Any names, with values of one kind."""
    return {...: kind}


_TEXTS = names_of(str)
_METADATA = {"name": str, "labels": Optional(_TEXTS)}
_POLICY = {"type": str, "value": int, "periodSeconds": int}
_SCALING = {"policies": [_POLICY], "stabilizationWindowSeconds": Optional(int)}
_SCALED_OBJECT = {
    "scaleTargetRef": {"name": str, "kind": Optional(str), "apiVersion": Optional(str)},
    "minReplicaCount": Optional(int),
    "maxReplicaCount": Optional(int),
    "pollingInterval": Optional(int),
    "cooldownPeriod": Optional(int),
    "triggers": [
        {
            "type": str,
            "metricType": Optional(str),
            "metadata": {"serverAddress": str, "query": str, "threshold": str},
        }
    ],
    "advanced": Optional(
        {"horizontalPodAutoscalerConfig": {"behavior": names_of(_SCALING)}},
    ),
}
_POD_MONITOR = {
    "jobLabel": Optional(str),
    "podTargetLabels": Optional([str]),
    "selector": {"matchLabels": _TEXTS},
    "podMetricsEndpoints": [{"port": str, "interval": Optional(str), "path": Optional(str)}],
}
_RULE = {
    "record": Optional(str),
    "alert": Optional(str),
    "expr": NUMBER_OR_TEXT,
    "for": Optional(str),
    "keep_firing_for": Optional(str),
    "labels": Optional(_TEXTS),
    "annotations": Optional(_TEXTS),
}
_PORT = {"number": range(1, 65536)}
_DOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_INFERENCE_POOL = {
    "selector": {
        "matchLabels": names_of(
            re.compile(r"(?=.{0,63}$)(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
        )
    },
    "targetPorts": [_PORT],
    "appProtocol": Optional(re.compile(r"http|kubernetes\.io/h2c")),
    "endpointPickerRef": {
        "group": Optional(re.compile(rf"(?=.{{0,253}}$)({_DOMAIN})?")),
        "kind": Optional(re.compile(r"(?=.{0,63}$)[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?")),
        "name": re.compile(r".{1,253}"),
        "port": Optional(_PORT),
        "failureMode": Optional(re.compile("FailOpen|FailClose")),
    },
}
_PROMETHEUS_RULE = {"groups": [{"name": str, "interval": Optional(str), "rules": [_RULE]}]}

SPECIFICATIONS = {
    ("inference.networking.k8s.io/v1", "InferencePool"): _INFERENCE_POOL,
    ("keda.sh/v1alpha1", "ScaledObject"): _SCALED_OBJECT,
    ("monitoring.coreos.com/v1", "PodMonitor"): _POD_MONITOR,
    ("monitoring.coreos.com/v1", "PrometheusRule"): _PROMETHEUS_RULE,
}


def problems(document: Any) -> list[str]:
    """Return what is wrong with a resource."""
    specification = SPECIFICATIONS[document["apiVersion"], document["kind"]]
    table = {"apiVersion": str, "kind": str, "metadata": _METADATA, "spec": specification}
    faults = list(_compare(document, table, document["kind"]))
    if specification is _INFERENCE_POOL and not faults:
        faults += _compare_pool(document["spec"])
    return faults


def _compare_pool(spec: Any) -> Iterator[str]:
    """Iterate over the faults of an InferencePool whose fields are right."""
    if not 1 <= len(spec["selector"]["matchLabels"]) <= 64:
        yield "not 1 to 64 labels"
    numbers = [port["number"] for port in spec["targetPorts"]]
    if len(numbers) > 8 or len({*numbers}) < len(numbers):
        yield "more than 8 ports, or one of them twice"
    picker = spec["endpointPickerRef"]
    if picker.get("kind", "Service") == "Service" and "port" not in picker:
        yield "a Service needs its port"


def _compare(value: Any, kind: Any, where: str) -> Iterator[str]:
    if isinstance(kind, list):
        if not isinstance(value, list) or not value:
            yield f"{where} is no list with elements"
            return
        for index, each in enumerate(value):
            yield from _compare(each, kind[0], f"{where}.{index}")
    elif isinstance(kind, dict):
        yield from _compare_fields(value, kind, where)
    elif isinstance(kind, re.Pattern):
        if not isinstance(value, str) or not kind.fullmatch(value):
            yield f"{where} is of another form: {value!r}"
    elif isinstance(kind, range):
        if type(value) is not int or value not in kind:
            yield f"{where} is not in its range: {value!r}"
    elif not isinstance(value, kind) or isinstance(value, bool):
        yield f"{where} is of another kind: {value!r}"


def _compare_fields(value: Any, table: dict[Any, Any], where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where} has no fields"
        return
    of_any = table.get(...)
    for key, item in value.items():
        kind = table.get(key, of_any)
        if kind is None:
            yield f"{where}.{key}: there is no such field"
        else:
            inner = kind.kind if isinstance(kind, Optional) else kind
            yield from _compare(item, inner, f"{where}.{key}")
    for key, kind in table.items():
        if key is not ... and not isinstance(kind, Optional) and key not in value:
            yield f"{where}.{key} is missing"
