"""The choice of captured requests: `--capture=prices:10%,fraud:1/s,logs*`."""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

#: Sequences whose captures have begun, and are remembered.
_MAX_SEQUENCES = 10_000
_PARTS = 1 << 32


class Rate(NamedTuple):
    """A share of the requests of some models, or a number per second; the other one is 0."""

    #: A name, or the beginning of names with * behind it.
    models: str
    share: float
    per_second: float = 0.0

    def is_for(self, model: str) -> bool:
        if self.models.endswith("*"):
            return model.startswith(self.models[:-1])
        return model == self.models


def parse(text: str) -> tuple[Rate, ...]:
    """Return the rates of an option's value. Raises ValueError."""
    return tuple(_rate(word.strip()) for word in text.split(","))


def _rate(word: str) -> Rate:
    models, _, amount = word.partition(":")
    if not models:
        raise ValueError("a model's name is missing, such as prices:10%")
    if not amount:
        return Rate(models, 1.0)
    number, unit = (amount[:-1], "%") if amount.endswith("%") else (amount[:-2], amount[-2:])
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if unit == "%" and 0 < value <= 100:
        return Rate(models, value / 100)
    if unit == "/s" and 0 < value < float("inf"):
        return Rate(models, 0.0, value)
    raise ValueError(f"'{amount}' must be a share such as 10% or a number such as 2/s")


class Sampler:
    """Chooses requests of one model; requests of a sequence are chosen together."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._tokens = self._burst = max(1.0, rate.per_second)
        self._filled_s = clock()
        self._sequences: OrderedDict[int | str, bool] = OrderedDict()

    def takes(self, sequence: int | str, *, is_start: bool) -> bool:
        """Return whether the next request is captured; `sequence` is 0 or "" for none."""
        if self._rate.share:
            if sequence:
                # alike in all frontends
                return crc32(str(sequence).encode()) < self._rate.share * _PARTS
            return random.random() < self._rate.share
        if not sequence:
            return self._has_token()
        if is_start:
            self._sequences[sequence] = self._has_token()
            if len(self._sequences) > _MAX_SEQUENCES:
                self._sequences.popitem(last=False)
        return self._sequences.get(sequence, False)

    def _has_token(self) -> bool:
        now_s = self._clock()
        gained = (now_s - self._filled_s) * self._rate.per_second
        self._tokens, self._filled_s = min(self._burst, self._tokens + gained), now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
