"""The routes of models in the description of the server's API: what each model says of its own."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

from zmqtriton_addons.routes import names
from zmqtriton_addons.routes.forwarding import forwarding_of
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_frontends.access.bearer_tokens import may_see
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.http_api import Request
from zmqtriton_frontends.inference import ModelVersion

_log = logging.getLogger(__name__)

_METHODS = ("get", "post", "put", "patch", "delete")
_SCHEMAS = "#/components/schemas/"
#: The fields of an operation that an application may fill.
_FIELDS = ("summary", "description", "parameters", "requestBody", "responses", "deprecated")
_TOKEN: list[dict[str, list[str]]] = [{"token": []}]


async def describe(gateway: Gateway, req: Request, document: dict[str, Any]) -> None:
    """Put the single routes of models in the place of those that stand for all."""
    for path in ("/models/{model}/{rest}", "/{path}"):
        del document["paths"][path]
    models = [
        version
        for version in gateway.catalogue.newest()
        if names.CONTENTS in version.config_text
        and version.config.get("backend") == names.BACKEND
        and may_see(req.grant, version.name.removesuffix(names.SUFFIX))
    ]
    forwarding = forwarding_of(gateway)
    answers = await asyncio.gather(
        *(forwarding.describe(req, model) for model in models), return_exceptions=True
    )
    for model, answer in zip(models, answers, strict=True):
        try:
            if isinstance(answer, BaseException):
                raise answer
            _add(document, model, answer, has_tokens=bool(gateway.settings.access.tokens))
        except (ZmqTritonError, ValueError, TypeError, AttributeError) as error:
            _log.warning("routes of '%s' are not described: %s", model.name, error)


def _add(
    document: dict[str, Any], routed: ModelVersion, own: dict[str, Any], *, has_tokens: bool
) -> None:
    """Add the document of one model. Raises the fault of an application's own document."""
    model = routed.name.removesuffix(names.SUFFIX)
    root, prefix = names.path_of(routed.config, model), re.sub(r"[^A-Za-z0-9._-]", "_", model)
    paths: dict[str, Any] = {}
    for path, operations in own["paths"].items():
        for method in _METHODS:
            if method in operations:
                operation = {n: v for n, v in operations[method].items() if n in _FIELDS}
                operation = {"summary": "", "responses": {}, **operation, "tags": [routed.name]}
                operation["operationId"] = "_".join(
                    (method, *re.findall(r"\w+", f"{root}{path}".replace("{", "By_")))
                )
                if has_tokens:
                    operation["security"] = _TOKEN
                paths.setdefault(f"{root}{path}", {})[method] = _renamed(operation, prefix)
    schemas = _renamed(own.get("components", {}).get("schemas", {}), prefix)
    document["components"]["schemas"] = {
        **document["components"]["schemas"],
        **{f"{prefix}.{name}": each for name, each in schemas.items()},
    }
    document["paths"] |= paths
    document["tags"].append({"name": routed.name})


def _renamed(value: Any, prefix: str) -> Any:
    """Return a part of a document that refers to the schemas by their names in the whole one."""
    if isinstance(value, list):
        return [_renamed(each, prefix) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: each.replace(_SCHEMAS, f"{_SCHEMAS}{prefix}.")
        if key == "$ref" and isinstance(each, str)
        else _renamed(each, prefix)
        for key, each in value.items()
    }
