"""The rollout for Kubernetes: its form, and that its parts, the pods and the metrics fit."""

from __future__ import annotations

import copy
import re
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from tests.standard.deploy.manifests import container, document, documents
from tests.standard.deploy.rollout_schemas import SCHEMAS
from tools.metrics_table import names_in, read_table

NAME = "kubernetes/rollout.yaml"


@pytest.fixture(scope="module")
def by_kind() -> dict[str, list[dict[str, Any]]]:
    kinds: dict[str, list[dict[str, Any]]] = {}
    for each in documents(NAME):
        kinds.setdefault(each["kind"], []).append(each)
    return kinds


def problems(each: dict[str, Any]) -> list[str]:
    validator = jsonschema.Draft202012Validator(SCHEMAS[each["kind"]])
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(each)]


@pytest.mark.parametrize("kind", SCHEMAS)
def test_all_fields_are_known_and_have_their_types(
    by_kind: dict[str, list[dict[str, Any]]], kind: str
) -> None:
    (each,) = by_kind[kind]
    assert [] == problems(each)

    wrong = copy.deepcopy(each)
    wrong["spec"]["stategy"] = {}
    assert any("'stategy' was unexpected" in text for text in problems(wrong))


def test_steps_and_weights_are_checked(by_kind: dict[str, list[dict[str, Any]]]) -> None:
    (rollout,) = copy.deepcopy(by_kind["Rollout"])
    steps = rollout["spec"]["strategy"]["canary"]["steps"]
    for wrong in ({"setWeight": 101}, {"pause": {"duration": 10}}, {"setwait": 1}):
        steps[1] = wrong
        assert problems(rollout), wrong


def test_the_parts_name_each_other_and_the_deployment(
    by_kind: dict[str, list[dict[str, Any]]],
) -> None:
    (rollout,), (analysis,), (route,) = (by_kind[kind] for kind in SCHEMAS)
    spec, canary = rollout["spec"], rollout["spec"]["strategy"]["canary"]
    deployment = document("kubernetes/deployment.yaml")
    services = {each["metadata"]["name"]: each["spec"] for each in by_kind["Service"]}

    assert deployment["metadata"]["name"] == spec["workloadRef"]["name"]
    assert deployment["spec"]["selector"] == spec["selector"]
    assert {canary["stableService"], canary["canaryService"]} == set(services)
    (rule,) = route["spec"]["rules"]
    assert set(services) == {each["name"] for each in rule["backendRefs"]}
    own_ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    for service in services.values():
        assert spec["selector"]["matchLabels"] == service["selector"]
        (port,) = service["ports"]
        assert own_ports[port["targetPort"]] == port["port"]
        assert {port["port"]} == {each["port"] for each in rule["backendRefs"]}
    plugin = canary["trafficRouting"]["plugins"]["argoproj-labs/gatewayAPI"]
    assert [route["metadata"]["name"]] == [each["name"] for each in plugin["httpRoutes"]]
    managed = {each["name"] for each in canary["trafficRouting"]["managedRoutes"]}
    assert managed == {
        s["setHeaderRoute"]["name"] for s in canary["steps"] if "setHeaderRoute" in s
    }
    assert [analysis["metadata"]["name"]] == [
        each["templateName"] for each in canary["analysis"]["templates"]
    ]


def test_the_analysis_has_its_arguments_and_reads_metrics_that_exist(
    by_kind: dict[str, list[dict[str, Any]]],
) -> None:
    (rollout,), (analysis,) = by_kind["Rollout"], by_kind["AnalysisTemplate"]
    arguments = {each["name"]: each for each in analysis["spec"]["args"]}
    passed = {each["name"] for each in rollout["spec"]["strategy"]["canary"]["analysis"]["args"]}
    assert passed == {name for name, each in arguments.items() if "value" not in each}
    (label,) = document("kubernetes/pod-monitor.yaml")["spec"]["podTargetLabels"]
    table = read_table()

    for metric in analysis["spec"]["metrics"]:
        query = metric["provider"]["prometheus"]["query"]
        assert set(re.findall(r"{{args\.(\w+)}}", str(metric))) <= set(arguments)
        names = names_in(query, table)
        assert names
        assert set(names) <= set(table)
        assert set(re.findall(r"nv_\w+", query)) == set(names)
        assert set(re.findall(r'(\w+)="{{', query)) == {label.replace("-", "_")}
        assert query.count("(") == query.count(")")
