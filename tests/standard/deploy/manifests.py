"""The manifests for Kubernetes and KServe, as documents."""

from __future__ import annotations

from typing import Any

import yaml

from tests.support.needs import ROOT

KUBERNETES = ROOT / "deploy" / "kubernetes"
KSERVE = ROOT / "deploy" / "kserve"

#: The arguments of KServe's own runtime for Triton, kserve-tritonserver.
KSERVES_ARGUMENTS = [
    "tritonserver",
    "--model-store=/mnt/models",
    "--grpc-port=9000",
    "--http-port=8080",
    "--allow-grpc=true",
    "--allow-http=true",
]

Document = dict[str, Any]


def documents(name: str) -> list[Any]:
    """Return the documents of a file below deploy/."""
    return list(yaml.safe_load_all((ROOT / "deploy" / name).read_text("utf-8")))


def document(name: str) -> Document:
    [only] = documents(name)
    return dict(only)


def pod() -> Document:
    """Return the pod of the Deployment."""
    return document("kubernetes/deployment.yaml")["spec"]["template"]


def container() -> Document:
    [only] = pod()["spec"]["containers"]
    return dict(only)


def runtime_container() -> Document:
    """Return the container that KServe starts."""
    [only] = document("kserve/runtime.yaml")["spec"]["containers"]
    return dict(only)


def patched(base: Any, patch: Any) -> Any:
    """Return a document with a patch, as Kubernetes merges them: lists of named things by name."""
    if isinstance(base, dict) and isinstance(patch, dict):
        merged = {key: patched(base[key], patch[key]) for key in base.keys() & patch.keys()}
        return {**base, **patch, **merged}
    if isinstance(base, list) and isinstance(patch, list) and "name" in patch[0]:
        changes = {item["name"]: item for item in patch}
        return [patched(item, changes.get(item["name"], {})) for item in base]
    return patch
