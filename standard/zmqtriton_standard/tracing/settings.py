"""The settings of traces: the options at start, then the changes by clients. Does no I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from zmqtriton.sdk.supervisor import (
    ControlCall,
    CoreParts,
    Feature,
    Sampling,
    TracingSettings,
    Verb,
)
from zmqtriton.sdk.wire import InvalidArgument, Unsupported

_FIXED_FILE = "trace file location can not be updated through network protocol"
#: The defaults of Triton's exporter.
_EXPORTER_DEFAULTS = {
    "bsp_max_export_batch_size": "512",
    "bsp_schedule_delay": "5000",
    "bsp_max_queue_size": "2048",
}
_REPEATABLE_KEY = "resource"
#: The settings that may change; numbers are strings, as everywhere in this extension.
_CHANGEABLE_SETTINGS = ("trace_level", "trace_rate", "trace_count", "log_frequency")


class TraceSettingsFeature(Feature):
    """The settings of traces, announced to frontends at start and after each change.

    A model's own settings override those for all models. Frontends choose the requests.
    """

    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        options = core.info.settings.trace
        self._mode, self._file = options.mode, options.file
        self._exporter_options: dict[str, str | list[str]] = dict(_EXPORTER_DEFAULTS)
        for key, value in options.opentelemetry:
            self._add_exporter_option(key, value)
        #: The settings with which the server was started.
        self._initial = {
            "trace_level": list(options.level) or ["OFF"],
            "trace_rate": str(options.rate),
            "trace_count": str(options.count),
            "log_frequency": str(options.log_frequency),
        }
        self._global_settings: dict[str, Any] = {}
        self._model_settings: dict[str, dict[str, Any]] = {}
        #: Number of times that the limit of traces was set, by model, or "" for all; each time a
        #: new count begins.
        self._limits_set: dict[str, int] = {}
        #: Number of traces under a limited setting, by `Sampling.counter`.
        self._traced: dict[str, int] = {}
        self._announce_all()

    @property
    def verbs(self) -> Mapping[str, Verb]:
        return {
            "trace.settings": Verb(self._handle).of_settings(),
            "trace.counted": Verb(self._count),
        }

    def repeated_calls(self) -> Iterable[tuple[str, dict[str, Any]]]:
        """Return the settings changed since the start, and the rest of trace_count."""
        for model, settings in {"": self._global_settings, **self._model_settings}.items():
            changes = dict(settings)
            if "trace_count" in changes:
                changes["trace_count"] = str(self._count_left(model))
            if changes:
                yield "trace.settings", {"model": model, "changes": changes}

    def _handle(self, call: ControlCall) -> dict[str, Any]:
        return self.update(ControlCall.optional_model_name(call.arguments), call.changes)

    def _count(self, call: ControlCall) -> None:
        """Record the counts of the process that stores traces."""
        counts = call.arguments.get("counts")
        if type(counts) is not dict or not all(type(count) is int for count in counts.values()):
            raise InvalidArgument("'counts' must be the numbers of traces")
        for counter, count in counts.items():
            # that process may have begun anew
            if counter in self._traced:
                self._traced[counter] = max(self._traced[counter], count)

    def _add_exporter_option(self, key: str, value: str) -> None:
        """Add an option that may be given several times.

        All its values are shown, between brackets.
        """
        said = self._exporter_options.get(key)
        if key != _REPEATABLE_KEY or said is None:
            self._exporter_options[key] = value
        else:
            self._exporter_options[key] = [*(said if isinstance(said, list) else [said]), value]

    def update(self, model: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change the settings of a model, or of all models without their own; return the settings.

        None as a value removes a setting.
        """
        if "trace_file" in changes:
            raise Unsupported(_FIXED_FILE)
        said = self._model_settings.get(model, {}) if model else self._global_settings
        settings = {**said, **_validate_changes(changes)}
        settings = {key: value for key, value in settings.items() if value is not None}
        description = self._describe(model, settings)
        if changes:
            reason = self._find_problem(description)
            if reason:
                raise InvalidArgument(f"Attempting to set invalid trace setting :{reason}")
            self._store(model, settings)
            if "trace_count" in changes:
                self._limits_set[model] = self._limits_set.get(model, 0) + 1
            self._announce_all()
        return {**description, "trace_count": str(self._count_left(model))}

    def _count_left(self, model: str) -> int:
        """Return the number of further traces; -1: no limit."""
        sampling = self._sampling(model if model in self._model_settings else "")
        traced = self._traced.get(sampling.counter, 0)
        return max(0, sampling.max_traces - traced) if sampling.max_traces >= 0 else -1

    def _find_problem(self, settings: Mapping[str, Any]) -> str:
        """Return why these settings cannot produce traces; "" if they can or tracing is off."""
        if settings["trace_level"] == ["OFF"]:
            return ""
        if settings["trace_rate"] == "0":
            return "sample rate must be non-zero"
        return "trace file name is not given" if self._mode == "triton" and not self._file else ""

    def forget_model(self, name: str) -> None:
        if self._model_settings.pop(name, None) is not None:
            self._announce_all()

    def _announce_all(self) -> None:
        """Announce the settings by model; the settings of all other models have the key "".

        Without a destination there are no traces.
        """
        has_place = self._mode != "triton" or bool(self._file)
        sampling = tuple(
            self._sampling(name) for name in (["", *self._model_settings] if has_place else [])
        )
        self._traced = {each.counter: self._traced.get(each.counter, 0) for each in sampling}
        levels = {level for each in sampling for level in each.levels}
        if self._mode == "opentelemetry" and "TENSORS" in levels:
            self._plan.log("W", "Tensor level tracing is not supported by the mode: opentelemetry")
        self._introductions.change_tracing(TracingSettings(self._mode, sampling))

    def _sampling(self, model: str) -> Sampling:
        own = self._model_settings.get(model, {})
        settings = {**self._initial, **self._global_settings, **own}
        limited = model if "trace_count" in own else ""
        return Sampling(
            model=model,
            levels=tuple(level for level in settings["trace_level"] if level != "OFF"),
            rate=int(settings["trace_rate"]),
            max_traces=int(settings["trace_count"]),
            log_frequency=int(settings["log_frequency"]),
            counter=json.dumps([limited, self._limits_set.get(limited, 0)]),
        )

    def _store(self, model: str, settings: dict[str, Any]) -> None:
        if not model:
            self._global_settings = settings
        elif settings:
            self._model_settings[model] = settings
        else:
            self._model_settings.pop(model, None)

    def _describe(self, model: str, said: Mapping[str, Any]) -> dict[str, Any]:
        settings = {**self._initial, **({**self._global_settings, **said} if model else said)}
        if self._mode == "triton":
            return {**settings, "trace_file": self._file, "trace_mode": self._mode}
        del settings["log_frequency"]
        return {**settings, "trace_mode": self._mode, **self._exporter_options}


def _validate_changes(changes: Mapping[str, Any]) -> Mapping[str, Any]:
    for key, value in changes.items():
        kind = list if key == "trace_level" else str
        if key not in _CHANGEABLE_SETTINGS or (value is not None and type(value) is not kind):
            raise InvalidArgument(
                f"unknown trace setting, `GET /v2/trace/setting` lists them: {key}"
            )
    return changes
