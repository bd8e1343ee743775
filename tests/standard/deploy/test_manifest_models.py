"""The manifests and Prometheus' configuration, judged by models and tools of their readers."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.standard.deploy import manifest_models
from tests.standard.deploy.manifests import KSERVE, KUBERNETES, document, patched
from tests.standard.deploy.test_expressions import panels
from tests.support.needs import ROOT, find_tool


def problems(python: Path, *files: Path) -> list[str]:
    command = [str(word) for word in (python, manifest_models.__file__, *files)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def write_gpu_variant(path: Path) -> Path:
    base, patch = document("kubernetes/deployment.yaml"), document("kubernetes/gpu.yaml")
    path.write_text(yaml.safe_dump(patched(base, patch)))
    return path


@pytest.mark.long(
    "standard/deploy/test_kubernetes.py::test_resources_of_operators_have_their_fields_and_no_others",
    "standard/deploy/test_manifest_models.py::test_kubectl_builds_the_files_with_everything_that_may_be_added",
)
def test_the_models_have_nothing_against_any_of_them(
    python_with_kserve: Path, tmp_path: Path
) -> None:
    of_kubernetes = ("deployment", "services", "disruption-budget", "autoscaler")
    files = [KUBERNETES / f"{name}.yaml" for name in of_kubernetes]
    files += [*KSERVE.glob("*.yaml"), write_gpu_variant(tmp_path / "gpu.yaml")]
    wrong = tmp_path / "wrong.yaml"
    text = files[0].read_text("utf-8").replace("periodSeconds: 10", "periodSecond: 10")
    text = text.replace("maxSurge: 1", "maxSurge: 1\n      extra: 1").replace("replicas: 2", "")
    text = text.replace("containerPort: 8000", "containerPort: http")
    wrong.write_text(text)

    texts = problems(python_with_kserve, *files, wrong)

    assert [] == [line for line in texts if not line.startswith("wrong.yaml")]
    assert any("periodSecond: V1Probe has no such field" in line for line in texts)
    assert any("containerPort is no int" in line for line in texts)
    assert any("extra: V1RollingUpdateDeployment has no such field" in line for line in texts)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is missing")
def test_kubectl_builds_the_files_with_everything_that_may_be_added(tmp_path: Path) -> None:
    shutil.copytree(KUBERNETES, tmp_path / "k")
    path = tmp_path / "k" / "kustomization.yaml"
    text = path.read_text("utf-8").replace("# - ", "- ").replace("# patches", "patches")
    path.write_text(text.replace("#   - path", "  - path"))

    done = subprocess.run(
        ["kubectl", "kustomize", tmp_path / "k"], capture_output=True, text=True, check=False
    )

    assert 0 == done.returncode, done.stderr
    built = {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}
    assert {"Deployment", "PodMonitor", "HorizontalPodAutoscaler", "Service"} <= set(built)
    [container] = built["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert "registry.example.com/zmqtriton:0.1.0" == container["image"]
    assert "1" == container["resources"]["limits"]["nvidia.com/gpu"]
    assert "2" == container["resources"]["requests"]["cpu"]
    expected = patched(document("kubernetes/deployment.yaml"), document("kubernetes/gpu.yaml"))
    [own] = expected["spec"]["template"]["spec"]["containers"]
    assert {**own, "image": ""} == {**container, "image": ""}


FILES = ROOT / "deploy" / "prometheus"


@pytest.fixture
def promtool() -> str:
    return find_tool("promtool", package="prometheus")


def run(directory: Path, *command: str) -> str:
    """Return the output of a command, which must succeed."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def test_the_configuration_and_its_rules_are_valid(promtool: str) -> None:
    assert "1 rule files found" in run(FILES, promtool, "check", "config", "prometheus.yml")


def test_the_configuration_in_compose_is_valid(promtool: str, tmp_path: Path) -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "docker" / "compose.yaml").read_text("utf-8"))
    (tmp_path / "prometheus.yml").write_text(compose["configs"]["prometheus"]["content"])
    shutil.copy(FILES / "zmqtriton.rules.yml", tmp_path)

    run(tmp_path, promtool, "check", "config", "prometheus.yml")


@pytest.mark.long(
    "standard/deploy/test_manifest_models.py::test_the_configuration_and_its_rules_are_valid"
)
def test_alerts_fire_for_what_they_are_about_and_for_nothing_else(
    promtool: str, tmp_path: Path
) -> None:
    names = ("prometheus_cases.yml", "prometheus_hours.yml")
    for name in names:
        cases = (Path(__file__).parent / name).read_text("utf-8")
        (tmp_path / name).write_text(cases.replace("RULES", str(FILES / "zmqtriton.rules.yml")))

    run(tmp_path, promtool, "test", "rules", *names)


def test_prometheus_understands_every_panel_of_the_dashboard(promtool: str, tmp_path: Path) -> None:
    variables = {"$__rate_interval": "1m", "$__range": "1h", "$instance": ".*", "$model": ".*"}
    text = json.dumps([target["expr"] for panel in panels() for target in panel["targets"]])
    for name, value in variables.items():
        text = text.replace(name, value)
    rules = [{"record": f"panel:{n}", "expr": e} for n, e in enumerate(json.loads(text))]
    assert len(rules) > 60
    (tmp_path / "panels.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "p", "rules": rules}]})
    )

    run(tmp_path, promtool, "check", "rules", "panels.yml")
