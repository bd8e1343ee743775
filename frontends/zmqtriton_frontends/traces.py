"""Which requests are traced, and what a frontend knows of those: when they came and were answered.

Asked by whoever has checked a request, over either protocol. A request that is not traced costs the
look at `is_on`. What is known goes to the process that keeps traces, and is lost rather than waited
for.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from zmqtriton_floor import wire
from zmqtriton_floor.spans import Sender, span_of
from zmqtriton_frontends.kserve import CheckedRequest
from zmqtriton_frontends.trace import Trace, now_ns

#: A traceparent whose span is to be the parent; later versions may add to it.
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?![0-9a-f])"
)
_PREFIX = 3 + 32


class _Choice(NamedTuple):
    """The settings of one model, or of all others."""

    #: What its traces are counted under, by all frontends.
    name: str
    is_on: bool
    flags: int
    rate: int
    most: int
    log_frequency: int


class Traces:
    def __init__(self) -> None:
        #: Whether any request may be.
        self.is_on = False
        self._is_given = False
        self._choices: dict[str, _Choice] = {}
        self._seen: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self._sender = Sender("")

    def begin(self, directory: str, settings: dict[str, Any]) -> None:
        self._sender = Sender(directory)
        self.change(settings.get("tracing", {}))

    def change(self, settings: dict[str, Any]) -> None:
        """What holds from now on, as wire.Tracing has it."""
        self._is_given = settings.get("mode") == "opentelemetry"
        self._choices = {
            model: _choice(model, said) for model, said in settings.get("of", {}).items()
        }
        self.is_on = any(choice.is_on for choice in self._choices.values())
        names = {choice.name for choice in self._choices.values()}
        self._seen = {name: self._seen.get(name, 0) for name in names}
        self._taken = {name: self._taken.get(name, 0) for name in names}

    def follow(
        self, checked: CheckedRequest, traceparent: str | None, received: tuple[str, int]
    ) -> CheckedRequest:
        """To be asked only while is_on: the request as it shall be sent. `received` is the name of
        what has been received, and when that began."""
        model = checked.model
        choice = self._choices.get(model.name) or self._choices.get("")
        if choice is None or not choice.is_on:
            return checked
        given = None
        if self._is_given and traceparent is not None:
            given = _TRACEPARENT.match(traceparent)
        if given is None and not self._is_due(choice):
            return checked
        self._taken[choice.name] += 1
        prefix = f"00-{os.urandom(16).hex()}" if given is None else f"00{given[0][2:_PREFIX]}"
        context = f"{prefix}-{os.urandom(8).hex()}-01"
        told = {
            "root": choice.name,
            "count": -1 if given is not None else choice.most,
            "log_frequency": choice.log_frequency,
            "parent": span_of(given[0]) if given is not None else "",
            "model": model.name,
            "version": model.version,
            "request_id": checked.body.request_id,
            "marks": [(f"{received[0]}_START", received[1]), (f"{received[0]}_END", now_ns())],
        }
        options = checked.options._replace(flags=checked.options.flags | choice.flags)
        return checked._replace(options=options, trace=Trace(self._sender, context, told))

    def _is_due(self, choice: _Choice) -> bool:
        if not choice.rate or 0 <= choice.most <= self._taken[choice.name]:
            return False
        self._seen[choice.name] += 1
        return self._seen[choice.name] % choice.rate == 0


def traceparent(metadata: Iterable[tuple[str, str | bytes]]) -> str | None:
    """What gRPC's metadata say."""
    found = [value for name, value in metadata if name == "traceparent"]
    return found[0] if len(found) == 1 and isinstance(found[0], str) else None


def _choice(model: str, said: dict[str, Any]) -> _Choice:
    name = json.dumps([model, *said["changes"]])
    flags = wire.TRACE_TENSORS if "TENSORS" in said["levels"] else 0
    numbers = said["rate"], said["count"], said["log_frequency"]
    return _Choice(name, bool(said["levels"]), flags, *numbers)
