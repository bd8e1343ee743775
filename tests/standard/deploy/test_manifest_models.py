"""The manifests, judged by the models of the clients of Kubernetes and KServe, and by kubectl."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.standard.deploy import manifest_models
from tests.standard.deploy.manifests import KSERVE, KUBERNETES, document, patched


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
