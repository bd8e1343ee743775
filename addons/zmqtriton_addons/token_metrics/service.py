"""The process that adds up tokens: lines of frontends come in, and the page asks for the sums."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from zmqtriton_addons.token_metrics import QUESTION
from zmqtriton_frontends.metrics_api.model_metrics import render
from zmqtriton_frontends.serving import Service

_log = logging.getLogger(__name__)

_COUNTER, _HISTOGRAM = 0, 2
#: vLLM's, so that its dashboards add up both.
_FIRST_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_PER_TOKEN_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
_FAMILIES = (
    ("vllm:prompt_tokens_total", "Tokens of prompts, as models report them", ()),
    ("vllm:generation_tokens_total", "Tokens made, or responses with a text", ()),
    ("vllm:time_to_first_token_seconds", "Time from arrival to the first text", _FIRST_S),
    ("vllm:time_per_output_token_seconds", "Mean time between tokens of a request", _PER_TOKEN_S),
)
#: The limit of versions that are counted; the oldest goes.
_MAX_VERSIONS = 10_000


class TokenSums:
    """The sums by model and version."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], list[dict[str, Any] | None]] = {}

    def add(self, model: str, version: str, *values: float | None) -> None:
        """Add a request: a value for each family, None to leave it out."""
        row = self._series.setdefault((model, version), [None] * len(_FAMILIES))
        for place, (value, (_, _, bounds)) in enumerate(zip(values, _FAMILIES, strict=True)):
            if value is None:
                continue
            series = row[place]
            if series is None:
                labels = {"model_name": model, "version": version}
                series = row[place] = {"labels": labels, "value": 0}
                if bounds:
                    series |= {"buckets": bounds, "counts": [0] * (len(bounds) + 1)}
            series["value"] += value
            if bounds:
                series["counts"][bisect_left(bounds, value)] += 1
        if len(self._series) > _MAX_VERSIONS:
            del self._series[next(iter(self._series))]

    def text(self) -> str:
        families = [
            {
                "name": name,
                "description": text,
                "kind": _HISTOGRAM if bounds else _COUNTER,
                "series": [s for row in self._series.values() if (s := row[place]) is not None],
            }
            for place, (name, text, bounds) in enumerate(_FAMILIES)
        ]
        return render(families)


class TokenMetrics(Service):
    def __init__(self, listener: socket.socket) -> None:
        """Set up with a bound socket."""
        self._listener = listener
        self._path = str(listener.getsockname())
        self._sums = TokenSums()
        self._connections = 0
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
                self._sums.add(*json.loads(line))
        except (ValueError, TypeError, ConnectionError):
            _log.exception("a frontend's counts of tokens are malformed")
        finally:
            self._connections -= 1
            writer.close()
