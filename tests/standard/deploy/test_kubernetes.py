"""The manifests for Kubernetes and KServe fit each other, the image and the server."""

from __future__ import annotations

import pytest

from tests.standard.deploy.custom_resources import problems
from tests.standard.deploy.manifests import (
    KUBERNETES,
    container,
    document,
    documents,
    pod,
)
from tests.standard.deploy.manifests import runtime_container as kserve_container
from tests.standard.deploy.test_docker import of
from tests.standard.deploy.test_expressions import rules
from zmqtriton.options import Options, parse

LABELS = {"app.kubernetes.io/name": "zmqtriton"}


def ports() -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container()["ports"]}


def options(arguments: list[str]) -> Options:
    parsed_options = parse(arguments)
    assert isinstance(parsed_options, Options)
    return parsed_options


def test_everything_selects_the_pods_of_the_deployment() -> None:
    services = documents("kubernetes/services.yaml")
    selectors = [service["spec"]["selector"] for service in services]
    for name in ("deployment", "disruption-budget", "pod-monitor"):
        selectors.append(document(f"kubernetes/{name}.yaml")["spec"]["selector"]["matchLabels"])
    target = document("kubernetes/autoscaler.yaml")["spec"]["scaleTargetRef"]

    assert [LABELS] * 5 == selectors
    assert LABELS == pod()["metadata"]["labels"]
    assert "zmqtriton" == document("kubernetes/deployment.yaml")["metadata"]["name"]
    assert ("Deployment", "zmqtriton") == (target["kind"], target["name"])


def test_the_user_is_the_images_and_has_no_rights() -> None:
    [user], [environment] = of("USER", 1), of("ENV", 1)
    shared, own = pod()["spec"]["securityContext"], container()["securityContext"]
    mounted = [mount["mountPath"] for mount in container()["volumeMounts"]]

    assert user.value == f"{shared['runAsUser']}:{shared['runAsGroup']}"
    for context in (own, kserve_container()["securityContext"]):
        assert ["ALL"] == context["capabilities"]["drop"]
        assert context["allowPrivilegeEscalation"] is False
    assert own["readOnlyRootFilesystem"] is True
    assert {"/tmp", "/run/zmqtriton", "/home/zmqtriton"} <= set(mounted)
    assert "HOME=/home/zmqtriton" in environment.value
    names = {volume["name"] for volume in pod()["spec"]["volumes"]}
    assert names == {mount["name"] for mount in container()["volumeMounts"]}


def test_the_autoscaler_asks_for_the_metric_that_the_rules_record() -> None:
    [metric] = document("kubernetes/autoscaler.yaml")["spec"]["metrics"]
    [[rule]] = documents("kubernetes/adapter-rules.yaml")

    assert rule["name"]["as"] == metric["pods"]["metric"]["name"]
    recorded = rule["seriesQuery"].partition("{")[0]
    assert recorded in {one.get("record") for one in rules()}
    assert recorded in rule["metricsQuery"]


def test_the_kustomization_names_every_file() -> None:
    text = (KUBERNETES / "kustomization.yaml").read_text("utf-8")
    others = {"kustomization.yaml", "adapter-rules.yaml"}

    files = {file.name for file in KUBERNETES.glob("*.yaml")} - others
    assert [] == [name for name in sorted(files) if name not in text]
    [image] = document("kubernetes/kustomization.yaml")["images"]
    assert container()["image"] == image["name"]


@pytest.mark.parametrize(
    "name", ["inference-pool", "pod-monitor", "prometheus-rule", "scaled-object"]
)
def test_resources_of_operators_have_their_fields_and_no_others(name: str) -> None:
    resource = document(f"kubernetes/{name}.yaml")
    assert [] == problems(resource)

    resource["spec"]["extra"] = 1
    del resource["metadata"]["name"]
    assert [
        f"{resource['kind']}.metadata.name is missing",
        f"{resource['kind']}.spec.extra: there is no such field",
    ] == problems(resource)


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (("extensionRef",), {"name": "x"}, ".spec.extensionRef: there is no such field"),
        (("selector",), {}, ".spec.selector.matchLabels is missing"),
        (("selector", "matchLabels"), {}, "not 1 to 64 labels"),
        (("selector", "matchLabels", "a"), "-", "matchLabels.a is of another form: '-'"),
        (("selector", "matchLabels", "a"), "a" * 64, "is of another form: 'aaa"),
        (("targetPorts",), [], ".spec.targetPorts is no list with elements"),
        (("targetPorts",), [{"number": 1}] * 2, "one of them twice"),
        (("targetPorts",), [{"number": n} for n in range(1, 10)], "more than 8 ports"),
        (("targetPorts",), [{"number": 0}], "targetPorts.0.number is not in its range: 0"),
        (("endpointPickerRef", "portNumber"), 9, "portNumber: there is no such field"),
        (("endpointPickerRef",), {"name": "x"}, "a Service needs its port"),
        (("endpointPickerRef", "failureMode"), "open", "failureMode is of another form: 'open'"),
    ],
)
def test_what_the_definition_of_pools_does_not_allow_is_found(
    place: tuple[str, ...], value: object, problem: str
) -> None:
    pool = document("kubernetes/inference-pool.yaml")
    *path, last = "spec", *place
    target = pool
    for name in path:
        target = target[name]
    target[last] = value

    [sentence] = problems(pool)
    assert problem in sentence


def test_the_pool_has_the_pods_and_their_port() -> None:
    pool = document("kubernetes/inference-pool.yaml")["spec"]
    assert pool["selector"]["matchLabels"].items() <= pod()["metadata"]["labels"].items()
    [port] = [each for each in container()["ports"] if each["name"] == "http"]
    assert [{"number": port["containerPort"]}] == pool["targetPorts"]


def test_the_rules_for_the_operator_are_those_of_prometheus() -> None:
    resource = document("kubernetes/prometheus-rule.yaml")

    assert document("prometheus/zmqtriton.rules.yml") == resource["spec"]


def test_both_autoscalers_follow_the_same_figure_within_the_same_limits() -> None:
    own = document("kubernetes/autoscaler.yaml")["spec"]
    of_keda = document("kubernetes/scaled-object.yaml")["spec"]
    [trigger] = of_keda["triggers"]
    [[rule]] = documents("kubernetes/adapter-rules.yaml")
    [metric] = own["metrics"]

    assert (own["minReplicas"], own["maxReplicas"]) == (
        of_keda["minReplicaCount"],
        of_keda["maxReplicaCount"],
    )
    assert own["scaleTargetRef"]["name"] == of_keda["scaleTargetRef"]["name"]
    assert own["behavior"] == of_keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert rule["seriesQuery"].partition("{")[0] in trigger["metadata"]["query"]
    assert metric["pods"]["target"]["averageValue"] == trigger["metadata"]["threshold"]


def test_pods_are_spread_over_machines_and_zones() -> None:
    constraints = pod()["spec"]["topologySpreadConstraints"]

    assert ["kubernetes.io/hostname", "topology.kubernetes.io/zone"] == [
        each["topologyKey"] for each in constraints
    ]
    assert [LABELS] * 2 == [each["labelSelector"]["matchLabels"] for each in constraints]
