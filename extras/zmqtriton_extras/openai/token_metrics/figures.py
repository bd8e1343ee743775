"""LLM tokens on the page of metrics, whose process asks the process of tokens at each scrape.

The page also has what the Gateway API's inference extension reads of a pod, by vLLM's names.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

from zmqtriton.sdk.frontend import Gateway, ModelVersion
from zmqtriton.sdk.wire import wire
from zmqtriton_extras.openai.tensor_names import ids_of
from zmqtriton_extras.openai.token_metrics.step import has_engine_metrics, text_names
from zmqtriton_extras.openai.token_metrics.texts import QUESTION, SERVICE
from zmqtriton_standard.metrics.model_metrics import render
from zmqtriton_standard.metrics.services import Figures, at_socket

_GAUGE = 1
_WAITING = "vllm:num_requests_waiting", "Requests that wait for an instance"
_RUNNING = "vllm:num_requests_running", "Requests that are executed"
_USE = "vllm:kv_cache_usage_perc", "Share of the places for requests in use, from 0 to 1"
_ADAPTERS = "vllm:lora_requests_info", "Adapters that clients may name; the time in seconds"


def metrics(gateway: Gateway) -> Figures:
    tokens = at_socket(gateway, SERVICE, QUESTION + b"\n")

    async def text() -> str:
        sums, answer = await asyncio.gather(tokens(), gateway.statistics(kind=wire.LOAD))
        return str(sums) + render(load_families(gateway.catalogue.newest(), answer["loads"]))

    return text


def load_families(
    models: Iterable[ModelVersion], loads: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the families about text models, from their loads by version."""
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {
        family: [] for family in (_WAITING, _RUNNING, _USE, _ADAPTERS)
    }
    by_version = {(load["name"], load["version"]): load for load in loads}
    for model in models:
        load = by_version.get((model.name, model.version))
        if load is None or text_names(model) is None or has_engine_metrics(model):
            continue
        labels = {"model_name": model.name, "version": str(model.version)}
        use = load["busy_slots"] / load["slots"] if load["slots"] else 1.0
        for family, value in (
            (_WAITING, load["queued"]),
            (_RUNNING, load["executing"]),
            (_USE, use),
        ):
            rows[family].append({"labels": labels, "value": value})
        _, *adapters = ids_of(model)
        if adapters:
            names = {"running_lora_adapters": ",".join(adapters), "waiting_lora_adapters": ""}
            about = {**labels, "max_lora": str(len(adapters)), **names}
            rows[_ADAPTERS].append({"labels": about, "value": time.time()})
    return [
        {"name": name, "description": description, "kind": _GAUGE, "series": series}
        for (name, description), series in rows.items()
    ]
