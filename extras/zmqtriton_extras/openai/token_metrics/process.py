"""The process that adds up tokens: `python -m zmqtriton_extras.openai.token_metrics.process`.

Frontends send lines, and the page asks for the sums. The process tells all frontends which bearer
tokens have used up their allowance.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from zmqtriton.sdk.process import Service, prctl, run_local
from zmqtriton_extras.openai.token_metrics.allowances import Allowances, Counted, Key
from zmqtriton_extras.openai.token_metrics.texts import QUESTION, SUMS
from zmqtriton_standard.metrics.model_metrics import render

_log = logging.getLogger(__name__)

#: Maximum unread bytes of a frontend; beyond it the frontend gets no news.
_MAX_UNREAD_BYTES = 1 << 20
_BALANCE_FIELDS = 3
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
    """The sums by model and version, and by bearer token, as families of the page."""

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
            told = request.told if family is _MADE else 0
            self._add(family, labels, None if tokens is None else max(0, tokens - told))
            self._add(_GEN_AI_USAGE, {**of_gen_ai, "gen_ai_token_type": of_kind}, tokens)
            if request.token:
                of_token = {"token": request.token, "model": request.model}
                self._add(_OF_TOKEN, {**of_token, "kind": kind}, tokens)

    def add_made(self, model: str, version: str, made: int) -> None:
        """Add tokens of a request that has not ended."""
        self._add(_MADE, {"model_name": model, "version": version}, made)

    def refuse(self, token: str) -> None:
        """Count a refused request."""
        self._add(_REFUSED, {"token": token}, 1)

    def _add(self, family: _Family, labels: dict[str, str], value: float | None) -> None:
        """Add a value to a series; None adds nothing."""
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
        """Return the number of LLM tokens that each version has generated, as JSON."""
        series = self._series[_MADE.name].items()
        return json.dumps({":".join(key): each["value"] for key, each in series})


class TokenMetrics(Service):
    """The process of LLM tokens, as frontends and the page see it."""

    def __init__(self, listener: socket.socket) -> None:
        """Set up with a bound socket."""
        self._listener = listener
        self._path = str(listener.getsockname())
        self._sums = TokenSums()
        self._allowances = Allowances()
        self._connections = 0
        self._frontends: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server

    async def open(self) -> Sequence[tuple[str, str]]:
        self._server = await asyncio.start_unix_server(self._take, sock=self._listener)
        return [("TokenMetrics", self._path)]

    async def end(self, within_s: float) -> None:
        with suppress(OSError):  # the directory is gone
            os.unlink(self._path)

    def end_idle(self) -> bool:
        # frontends end after their clients, and send until then
        return not self._connections

    async def close(self) -> None:
        self._server.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            while line := (await reader.readline()).rstrip():
                if line == QUESTION:
                    writer.write(self._sums.text().encode())
                    break
                if line == SUMS:
                    writer.write(self._sums.made().encode())
                    break
                self._take_line(json.loads(line), writer)
        except (ValueError, TypeError, ConnectionError):
            _log.exception("a frontend's counts of tokens are malformed")
        finally:
            self._connections -= 1
            self._frontends.discard(writer)
            writer.close()

    def _take_line(
        self, row: list[Any] | dict[str, Any] | str, writer: asyncio.StreamWriter
    ) -> None:
        """Process a line: an ended request, the name of a refused bearer token, or a hello ([]).

        A dictionary has tokens of a request that continues. After a hello the frontend sends the
        balances that it knows, since this process has just started.
        """
        now_ns = time.monotonic_ns()
        if isinstance(row, str):
            self._sums.refuse(row)
        elif isinstance(row, dict):
            self._sums.add_made(**row)
        elif not row:
            self._frontends.add(writer)
            writer.write(self._allowances.describe(now_ns))
        elif len(row) == _BALANCE_FIELDS:
            self._tell_debt(self._allowances.take(row, now_ns), now_ns)
        else:
            self._count(Counted(*row), now_ns)

    def _count(self, request: Counted, now_ns: int) -> None:
        self._sums.add(request)
        if not request.per_minute:
            return
        key = request.token, request.per_minute
        self._allowances.use(key, (request.prompt or 0) + request.made, now_ns)
        self._tell_debt(key, now_ns)

    def _tell_debt(self, key: Key, now_ns: int) -> None:
        """Tell all frontends about a bearer token that has used up its allowance."""
        if news := self._allowances.describe_debt(key, now_ns):
            for frontend in self._frontends:
                if frontend.transport.get_write_buffer_size() < _MAX_UNREAD_BYTES:
                    frontend.write(news)


def main() -> int:
    return run_local("zmqtriton-tokens", lambda gateway, bound: TokenMetrics(bound))


if __name__ == "__main__":
    prctl.run_program(main)
