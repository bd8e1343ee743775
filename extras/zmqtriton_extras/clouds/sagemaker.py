"""SageMaker's endpoints: /ping, /invocations, and /models for endpoints with many models."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from zmqtriton.sdk.frontend import AccessRules, Gateway
from zmqtriton_extras.clouds.target_models import (
    TARGET_MODEL,
    Application,
    Scope,
    Target,
    TargetModels,
    answer,
    header,
    pass_on,
    refuse,
    with_length_in_type,
)

BINARY_TYPE = "application/vnd.sagemaker-triton.binary+json;json-header-size="

_INVOKE = re.compile(r"/models/([^/]+)/invoke")
_MODELS = re.compile(r"/models(?:/[^/]*)?")
_METHODS = frozenset({"GET", "HEAD", "POST", "DELETE"})
#: Status that makes the platform unload another model.
_OUT_OF_MEMORY = 507
_KEPT = (401, 404, 409, 429)
_MEMORY_WORDS = tuple(
    word.encode()
    for word in (
        "CUDA out of memory",
        "CUDA_OUT_OF_MEMORY",
        "Out of memory",
        "Out Of Memory",
        "out of memory",
        "MemoryError",
        "OutOfMemory",
        "OOM",
        "Dst tensor is not initialized",
        "Src tensor is not initialized",
        "CNMEM_STATUS_OUT_OF_MEMORY",
        "CUDNN_STATUS_NOT_INITIALIZED",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "CUBLAS_STATUS_NOT_INITIALIZED",
        "Failed to allocate memory",
        "failed to allocate memory",
        "No space left on device",
    )
)


class SageMaker:
    """The ASGI application of SageMaker's port."""

    def __init__(
        self,
        gateway: Gateway,
        application: Application,
        models: TargetModels,
        models_application: Application,
        access: AccessRules,
    ) -> None:
        """Set up; `models_application` answers for /models."""
        self._access = access
        name, probe, kind = sagemaker_targets(os.environ)
        self._application = application
        self._models = models
        self._models_application = models_application
        model = quote(name, safe="")
        self._targets = {
            "/ping": f"/v2/health/{probe}",
            "/invocations": f"/v2/models/{model}/{kind}",
        }

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        path, method = scope["path"], scope["method"]
        if path in self._targets:
            target = Target(method, self._targets[path], BINARY_TYPE)
            send_binary = with_length_in_type(send, BINARY_TYPE)
            await pass_on(self._application, scope, receive, send_binary, target)
        elif method == "POST" and (invoked := _INVOKE.fullmatch(path)):
            await self._invoke(invoked[1], scope, receive, send)
        elif method in _METHODS and _MODELS.fullmatch(path):
            changed = {"path": path.rstrip("/")}
            await self._models_application({**scope, **changed}, receive, _as_refusals(send))
        else:
            await answer(send, 400)

    async def _invoke(self, name: str, scope: Scope, receive: Any, send: Any) -> None:
        model = header(scope, TARGET_MODEL) or name
        refusal = self._access.refusal(scope, "infer", model)
        if refusal is not None:
            await refuse(send, refusal)
            return
        if "/" in model or not await self._models.has(name, model):
            await answer(send, 404)
            return
        target = Target("POST", f"/v2/models/{quote(model, safe='')}/infer", BINARY_TYPE)
        send_binary = with_length_in_type(_as_refusals(send), BINARY_TYPE)
        await pass_on(self._application, scope, receive, send_binary, target)


def sagemaker_targets(environment: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the model of SageMaker's requests, the probe of a ping, and the inference route."""
    return (
        environment.get(
            "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME",
            "unspecified_SAGEMAKER_TRITON_DEFAULT_MODEL_NAME",
        ),
        environment.get("SAGEMAKER_TRITON_PING_MODE", "ready"),
        environment.get("SAGEMAKER_TRITON_INFERENCE_TYPE", "infer"),
    )


def _as_refusals(send: Any) -> Any:
    """Return a `send` with the statuses that the platform knows: 400 for all errors, or 507.

    Statuses about a model's place in the list, or about the client, stay.
    """
    held: list[dict[str, Any]] = []
    body = bytearray()

    async def send_event(event: dict[str, Any]) -> None:
        is_start = event["type"] == "http.response.start"
        if is_start and event["status"] >= 400 and event["status"] not in _KEPT:
            held.append(event)
            return
        if not held:
            await send(event)
            return
        body.extend(event.get("body", b""))
        if event.get("more_body"):
            return
        is_short = any(word in body for word in _MEMORY_WORDS)
        await send({**held[0], "status": _OUT_OF_MEMORY if is_short else 400})
        await send({"type": "http.response.body", "body": bytes(body)})

    return send_event
