"""The sums of tokens, as families of the page."""

from __future__ import annotations

import json
from bisect import bisect_left
from typing import Any, NamedTuple

from zmqtriton_addons.metrics.model_metrics import render
from zmqtriton_addons.token_metrics.counted import Counted

_COUNTER, _HISTOGRAM = 0, 2
#: OpenTelemetry's, which vLLM's go on.
_FIRST_S = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
)
_PER_TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_USAGE = tuple(4**power for power in range(14))


class _Family(NamedTuple):
    name: str
    help: str
    bounds: tuple[float, ...] = ()


_PROMPT = _Family("vllm:prompt_tokens_total", "Tokens of prompts, as models report them")
_MADE = _Family("vllm:generation_tokens_total", "Tokens made, or responses with a text")
#: Buckets are vLLM's, so that its dashboards add up both.
_FIRST = _Family(
    "vllm:time_to_first_token_seconds",
    "Time from arrival to the first text",
    (*_FIRST_S, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_PER_TOKEN = _Family(
    "vllm:time_per_output_token_seconds",
    "Mean time between tokens of a request",
    (*_PER_TOKEN_S, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_GEN_AI_USAGE = _Family("gen_ai_client_token_usage", "Tokens of a request", _USAGE)
_GEN_AI_FIRST = _Family("gen_ai_server_time_to_first_token_seconds", _FIRST.help, _FIRST_S)
_GEN_AI_PER_TOKEN = _Family(
    "gen_ai_server_time_per_output_token_seconds", _PER_TOKEN.help, _PER_TOKEN_S
)
_OF_TOKEN = _Family("zmqtriton_token_usage_total", "Tokens of text by bearer token and model")
_REFUSED = _Family(
    "zmqtriton_token_usage_refused_total", "Requests refused by tokens_per_minute, by bearer token"
)
_FAMILIES = (
    _PROMPT,
    _MADE,
    _FIRST,
    _PER_TOKEN,
    _GEN_AI_USAGE,
    _GEN_AI_FIRST,
    _GEN_AI_PER_TOKEN,
    _OF_TOKEN,
    _REFUSED,
)
#: The limit of series of a family; the oldest goes.
_MAX_SERIES = 10_000


class TokenSums:
    """The sums by model and version, and by bearer token."""

    def __init__(self) -> None:
        self._series: dict[str, dict[tuple[str, ...], dict[str, Any]]] = {
            family.name: {} for family in _FAMILIES
        }
        #: The versions whose engine has series of vLLM's names itself.
        self._reported: set[tuple[str, ...]] = set()

    def add(self, request: Counted) -> None:
        labels = {"model_name": request.model, "version": request.version}
        if request.is_reported:
            self._reported.add((request.model, request.version))
        of_gen_ai = {
            "gen_ai_operation_name": "text_completion",
            "gen_ai_provider_name": "zmqtriton",
            "gen_ai_request_model": request.model,
            "gen_ai_response_model": f"{request.model}:{request.version}",
        }
        self._add(_FIRST, labels, request.first_s)
        self._add(_PER_TOKEN, labels, request.per_token_s)
        self._add(_GEN_AI_FIRST, of_gen_ai, request.first_s)
        self._add(_GEN_AI_PER_TOKEN, of_gen_ai, request.per_token_s)
        for family, kind, of_kind, tokens in (
            (_PROMPT, "prompt", "input", request.prompt),
            (_MADE, "generated", "output", request.made),
        ):
            self._add(family, labels, tokens)
            self._add(_GEN_AI_USAGE, {**of_gen_ai, "gen_ai_token_type": of_kind}, tokens)
            if request.token:
                of_token = {"token": request.token, "model": request.model}
                self._add(_OF_TOKEN, {**of_token, "kind": kind}, tokens)

    def refuse(self, token: str) -> None:
        """Count a request that was refused."""
        self._add(_REFUSED, {"token": token}, 1)

    def _add(self, family: _Family, labels: dict[str, str], value: float | None) -> None:
        """Add a value to a series, None for no value."""
        if value is None:
            return
        of_family, bounds = self._series[family.name], family.bounds
        key = tuple(labels.values())
        series = of_family.get(key)
        if series is None:
            series = of_family[key] = {"labels": labels, "value": 0}
            if bounds:
                series |= {"buckets": bounds, "counts": [0] * (len(bounds) + 1)}
            if len(of_family) > _MAX_SERIES:
                del of_family[next(iter(of_family))]
        series["value"] += value
        if bounds:
            series["counts"][bisect_left(bounds, value)] += 1

    def text(self) -> str:
        """Return the text for the page."""
        families = [
            {
                "name": name,
                "description": text,
                "kind": _HISTOGRAM if bounds else _COUNTER,
                "series": [
                    series
                    for key, series in self._series[name].items()
                    if key not in self._reported
                ],
            }
            for name, text, bounds in _FAMILIES
        ]
        return render(families)

    def made(self) -> str:
        """Return how many tokens each version has made, as JSON."""
        series = self._series[_MADE.name].items()
        return json.dumps({":".join(key): each["value"] for key, each in series})
