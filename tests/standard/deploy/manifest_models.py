"""Run by an interpreter with KServe: what is wrong in manifests, by the models of the clients.

    python manifest_models.py FILE...

Prints a JSON list of sentences. Fields that a model does not have are wrong, as are values of other
types and fields that are missing.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODELS = {
    ("apps/v1", "Deployment"): "V1Deployment",
    ("autoscaling/v2", "HorizontalPodAutoscaler"): "V2HorizontalPodAutoscaler",
    ("policy/v1", "PodDisruptionBudget"): "V1PodDisruptionBudget",
    ("serving.kserve.io/v1alpha1", "ClusterServingRuntime"): "V1alpha1ClusterServingRuntime",
    ("serving.kserve.io/v1beta1", "InferenceService"): "V1beta1InferenceService",
    ("v1", "Service"): "V1Service",
}
#: Values of a model's field, by the name of its type; `object` is anything.
PLAIN: dict[str, Any] = {"bool": bool, "int": int, "str": str, "float": (int, float)}


def find_model(name: str) -> Any:
    for package in ("kserve.models", "kubernetes.client.models"):
        cls = getattr(importlib.import_module(package), name, None)
        if cls is not None:
            return cls
    raise LookupError(name)


def problems(value: Any, kind: str, where: str) -> Iterator[str]:
    """Iterate over what is wrong with a value that should be of this type."""
    inner = re.fullmatch(r"(list|dict)[\[(](?:str, ?)?(.*)[\])]", kind, re.IGNORECASE)
    if inner:
        container = list if inner[1].lower() == "list" else dict
        if not isinstance(value, container):
            yield f"{where} is no {inner[1]}"
            return
        items = enumerate(value) if isinstance(value, list) else value.items()
        for key, item in items:
            yield from problems(item, inner[2], f"{where}.{key}")
    elif kind in PLAIN:
        if not isinstance(value, PLAIN[kind]) or (kind == "int" and isinstance(value, bool)):
            yield f"{where} is no {kind}: {value!r}"
    elif kind not in ("object", "datetime", "IntOrString"):
        yield from problems_of_model(value, find_model(kind), where)


def problems_of_model(value: Any, model: Any, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where} is no {model.__name__}: {value!r}"
        return
    names = {key: name for name, key in model.attribute_map.items()}
    arguments = {}
    for key, item in value.items():
        if key not in names:
            yield f"{where}.{key}: {model.__name__} has no such field"
        else:
            arguments[names[key]] = item
            yield from problems(item, model.openapi_types[names[key]], f"{where}.{key}")
    try:
        model(**arguments)
    except ValueError as error:
        yield f"{where}: {error}"


def main(files: list[str]) -> None:
    yaml = importlib.import_module("yaml")
    texts = []
    for file in files:
        for document in yaml.safe_load_all(Path(file).read_text("utf-8")):
            key = document["apiVersion"], document["kind"]
            model = find_model(MODELS[key])
            texts += list(problems_of_model(document, model, f"{Path(file).name}:{key[1]}"))
    json.dump(texts, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
