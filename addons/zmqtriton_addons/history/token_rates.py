"""Tokens per second of models that make text, of the sums that the process of tokens has."""

from __future__ import annotations

import asyncio
import time

from zmqtriton_addons.history.history import ModelSample
from zmqtriton_addons.metrics.services import at_socket
from zmqtriton_addons.token_metrics import SERVICE, SUMS
from zmqtriton_addons.token_metrics.rates import parse
from zmqtriton_frontends.gateway import Gateway

_WITHIN_S = 1.0


class TokenRates:
    def __init__(self, gateway: Gateway) -> None:
        """Set up; without --token-metrics no sample has any."""
        is_counted = SERVICE in dict(gateway.settings.server.service_options)
        self._ask = at_socket(gateway, SERVICE, SUMS + b"\n") if is_counted else None
        #: The sum of each version at its last sample; None before the first answer.
        self._before: dict[str, int] | None = None
        self._at_s = 0.0

    async def add_to(self, models: dict[str, ModelSample]) -> dict[str, ModelSample]:
        """Return the samples with the rates since the last ones."""
        if self._ask is None:
            return models
        try:
            sums = parse(await asyncio.wait_for(self._ask(), _WITHIN_S))
        except (OSError, ValueError, asyncio.TimeoutError):
            return models  # it is being replaced
        return self.rate(models, sums, time.monotonic())

    def rate(
        self, models: dict[str, ModelSample], sums: dict[str, int], now_s: float
    ) -> dict[str, ModelSample]:
        """Return the samples with the rates of these sums."""
        seconds, self._at_s = now_s - self._at_s, now_s
        if self._before is None:
            self._before = sums  # their time is not known
            return models
        rated = dict(models)
        for name in models.keys() & sums.keys():
            # less than before if their process was replaced
            grown = sums[name] - self._before.get(name, 0)
            made = grown if grown >= 0 else sums[name]
            rated[name] = models[name]._replace(tokens_per_s=made / seconds)
            self._before[name] = sums[name]
        return rated
