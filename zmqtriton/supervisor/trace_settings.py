"""Which requests are traced: as the options said at start, then as clients change it.

Asked through control.py. A model has what was said for it alone, over what was said for all. The
settings are kept and answered; nothing is traced yet, which is logged once. Does no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from zmqtriton.supervisor.plan import Plan
from zmqtriton_floor.errors import InvalidArgument, Unsupported

_FIXED_FILE = "trace file location can not be updated through network protocol"
_NO_FILE = "Attempting to set invalid trace setting :trace file name is not given"
#: What Triton's exporter assumes where nothing is said.
_EXPORTER = {
    "bsp_max_export_batch_size": "512",
    "bsp_schedule_delay": "5000",
    "bsp_max_queue_size": "2048",
}
#: The settings that may change; numbers are texts, as everywhere in this extension.
_NAMES = ("trace_level", "trace_rate", "trace_count", "log_frequency")


class TraceSettings:
    def __init__(self, plan: Plan, settings: str) -> None:
        self._plan = plan
        options = json.loads(settings).get("trace", {})
        self._mode = options.get("mode", "triton")
        self._file = options.get("file", "")
        self._exporter = {key: value for key, value in options.get("opentelemetry", ())}
        #: As the server was started.
        self._first = {
            "trace_level": list(options.get("level", ())) or ["OFF"],
            "trace_rate": str(options.get("rate", 1000)),
            "trace_count": str(options.get("count", -1)),
            "log_frequency": str(options.get("log_frequency", 0)),
        }
        self._for_all: dict[str, Any] = {}
        self._for_model: dict[str, dict[str, Any]] = {}
        self._has_warned = False

    def handle(self, model: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The settings after these changes: those of a model, or, without a name, of all that have
        none of their own. None as a value undoes what was said."""
        if "trace_file" in changes:
            raise Unsupported(_FIXED_FILE)
        said = self._for_model.get(model, {}) if model else self._for_all
        wanted = {**said, **_read(changes)}
        wanted = {key: value for key, value in wanted.items() if value is not None}
        found = self._describe(model, wanted)
        if changes:
            is_on = found["trace_level"] != ["OFF"]
            if is_on and self._mode == "triton" and not self._file:
                raise InvalidArgument(_NO_FILE)
            self._keep(model, wanted)
            if is_on and not self._has_warned:
                self._has_warned = True
                self._plan.log("W", "the trace settings are kept, but nothing is traced yet")
        return found

    def forget(self, model: str) -> None:
        """It is no longer known."""
        self._for_model.pop(model, None)

    def _keep(self, model: str, wanted: dict[str, Any]) -> None:
        if not model:
            self._for_all = wanted
        elif wanted:
            self._for_model[model] = wanted
        else:
            self._for_model.pop(model, None)

    def _describe(self, model: str, said: Mapping[str, Any]) -> dict[str, Any]:
        over = {**self._for_all, **said} if model else said
        found = {**self._first, **over}
        if self._mode == "triton":
            return {**found, "trace_file": self._file, "trace_mode": self._mode}
        del found["log_frequency"]
        return {**found, "trace_mode": self._mode, **_EXPORTER, **self._exporter}


def _read(changes: Mapping[str, Any]) -> Mapping[str, Any]:
    for key, value in changes.items():
        kind = list if key == "trace_level" else str
        if key not in _NAMES or (value is not None and type(value) is not kind):
            raise InvalidArgument(f"there is no such trace setting: {key}")
    return changes
