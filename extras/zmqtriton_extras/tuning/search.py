"""The settings that `zmqtriton-ctl tune` tries, and which of two is better. Does no I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from zmqtriton.sdk.wire import InvalidArgument

THROUGHPUT, AUTO = "throughput", "auto"
_FORM = re.compile(r"p(50|90|99)\s+(\d+(?:\.\d+)?)\s*(ms|s)")
#: Least gain that is no noise.
_GAIN = 1.03
#: Delays to try, as shares of an execution.
_SHARES = (0.1, 0.3, 1.0)
#: Values of one setting that are worse, one after the other, before the rest is left out.
_WORSE = 2
#: Names of the settings, in the order of their trials.
AXES = ("batch", "instances", "delay")
_ROUNDS = 2
Row = Mapping[str, Any]


class Goal(NamedTuple):
    """The target of a search."""

    text: str
    #: Column with the share of the responses, and its limit; without a limit the rate decides.
    column: str = ""
    limit_ms: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Goal:
        """Read a target. Raises InvalidArgument."""
        if text == THROUGHPUT:
            return cls(text)
        form = _FORM.fullmatch(text)
        if form is None:
            raise InvalidArgument(f"--target '{text}' must be throughput, or such as 'p99 200 ms'")
        limit_ms = float(form[2]) * (1000 if form[3] == "s" else 1)
        return cls(text, f"p{form[1]}_ms", limit_ms)

    def value(self, row: Row) -> tuple[int, float]:
        """Return a number that is higher for better rows: first those that reach the target."""
        rate = float(row["requests_per_s"])
        if not rate or row["failed"]:
            return -1, rate
        if self.column and row[self.column] > self.limit_ms:
            return 0, 1 / row[self.column]
        return 1, rate

    def is_better(self, row: Row, than: Row) -> bool:
        (reached, value), (has_reached, before) = self.value(row), self.value(than)
        return reached > has_reached or (reached == has_reached and value > _GAIN * before)


class Setting(NamedTuple):
    """One trial: what the model's configuration says."""

    instances: int
    #: `max_batch_size`; 0 for a model without batches.
    batch: int
    #: `auto`, or microseconds.
    delay: str

    def describe(self) -> str:
        return f"{self.instances} x {self.batch or 1}, delay {self.delay}"


class Search:
    """A walk from the best setting until now, along one axis after the other."""

    def __init__(
        self, first: Setting, goal: Goal, cores: int, *, keeps_delay: bool = False
    ) -> None:
        self.goal = goal
        #: Rows by their settings, in the order of their trials.
        self.rows: dict[Setting, Row] = {}
        self.best = self._first = first
        self._cores = cores
        self._keeps_delay = keeps_delay

    def run(self, measure: Callable[[Setting, Row | None], Row | None]) -> None:
        """Try settings; `measure` gets one with the best row, and returns None at the end."""
        for setting in self._settings():
            if setting in self.rows:
                continue
            row = measure(setting, self.rows.get(self.best))
            if row is None:
                return
            self.rows[setting] = row
            if setting != self.best and self.goal.is_better(row, self.rows[self.best]):
                self.best = setting

    def _settings(self) -> Iterator[Setting]:
        yield self._first
        for _ in range(_ROUNDS):
            before = self.best
            for axis in AXES:
                worse = 0
                for value in self._values(axis):
                    setting = self.best._replace(**{axis: value})
                    yield setting
                    worse = 0 if self.best == setting else worse + 1
                    if worse >= _WORSE and axis != "delay":
                        break
            if self.best == before:
                return

    def _values(self, axis: str) -> list[Any]:
        if axis == "instances":
            powers = (1 << n for n in range(self._cores.bit_length()))
            return [n for n in powers if n <= self._cores and n != self.best.instances]
        largest = self._first.batch
        if axis == "batch":
            powers = (1 << n for n in reversed(range(largest.bit_length())))
            return [n for n in powers if n != self.best.batch]
        if self.best.batch < 2 or self._keeps_delay:
            return []
        execution_us = 1000 * (self.rows[self.best].get("compute_ms") or 0)
        delays = [str(100 * round(execution_us * share / 100)) for share in _SHARES if execution_us]
        return [AUTO, "0", *delays]


def trial_config(config: Mapping[str, Any], setting: Setting, goal: Goal) -> dict[str, Any]:
    """Return a model's configuration for a trial."""
    groups = config.get("instance_group") or [{}]
    document = {**config, "instance_group": [{**groups[0], "count": setting.instances}]}
    parameters = dict(config.get("parameters", {}))
    for name in ("BATCH_DELAY", "BATCH_TARGET"):
        parameters.pop(name, None)
    if setting.batch:
        document["max_batch_size"] = setting.batch
        batching = dict(config.get("dynamic_batching") or {})
        for name in ("preferred_batch_size", "max_queue_delay_microseconds"):
            batching.pop(name, None)
        if setting.delay == AUTO:
            parameters["BATCH_DELAY"] = {"string_value": AUTO}
            parameters["BATCH_TARGET"] = {"string_value": goal.text}
        else:
            batching["max_queue_delay_microseconds"] = int(setting.delay)
        document["dynamic_batching"] = batching
    return {**document, "parameters": parameters}


def first_setting(config: Mapping[str, Any]) -> Setting:
    """Return the settings of a configuration."""
    groups = config.get("instance_group") or [{}]
    delay_us = config.get("dynamic_batching", {}).get("max_queue_delay_microseconds", 0)
    is_auto = "BATCH_DELAY" in config.get("parameters", {})
    batches = int(config.get("max_batch_size", 0)) if "dynamic_batching" in config else 0
    return Setting(int(groups[0].get("count", 1)), batches, AUTO if is_auto else str(delay_us))


def config_lines(setting: Setting, goal: Goal) -> list[str]:
    """Return the lines for config.pbtxt, and the arguments for @model."""
    lines = [f"instance_group {{ count: {setting.instances} }}"]
    words = [f"instances={setting.instances}"]
    if setting.batch:
        is_auto = setting.delay == AUTO
        delay = "" if is_auto else f"max_queue_delay_microseconds: {setting.delay} "
        lines += [f"max_batch_size: {setting.batch}", f"dynamic_batching {{ {delay}}}"]
        words.append(f"batch={setting.batch}")
        if is_auto:
            values = {"BATCH_DELAY": AUTO, "BATCH_TARGET": goal.text}
            lines += [
                f'parameters {{ key: "{key}" value {{ string_value: "{text}" }} }}'
                for key, text in values.items()
            ]
            words.append(f'delay="auto", target="{goal.text}"')
        elif int(setting.delay):
            words.append(f"delay_ms={int(setting.delay) / 1000:g}")
    return [*lines, f"@model({', '.join(words)})"]
