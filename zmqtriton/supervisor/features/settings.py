"""The settings of the log: the options at start, then the changes by clients. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zmqtriton.supervisor.actions import ConfigureLogging
from zmqtriton.supervisor.control.verbs import RepeatedCall, Verb, Verbs
from zmqtriton.supervisor.features.feature import CoreParts, Feature
from zmqtriton_floor.errors import InvalidArgument, Unsupported
from zmqtriton_floor.logs import FORMS

_FIXED_LOG_FILE = "log file location can not be updated through network protocol"
_FIELDS = {
    "log_info": "info",
    "log_warning": "warning",
    "log_error": "error",
    "log_verbose_level": "verbose",
    "log_format": "form",
}


class LogSettingsFeature(Feature):
    """A change is sent to every process; processes that start later get it with their Bootstrap."""

    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        self._file = core.info.settings.log_file
        self._options = self._initial = core.info.settings.broker.log

    def repeated_calls(self) -> Iterable[RepeatedCall]:
        """Return the settings that differ from the settings at the start."""
        names = {name: key for key, name in _FIELDS.items()}
        now, before = self._options._asdict(), self._initial._asdict()
        changes = {names[n]: value for n, value in now.items() if value != before[n]}
        return [("log.settings", {"changes": changes})] if changes else []

    @property
    def verbs(self) -> Verbs:
        return {
            "log.settings": Verb(lambda call: self.update(call.changes)).of_settings(),
        }

    def update(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Apply all of these changes or none, and return the settings."""
        if "log_file" in changes:
            raise Unsupported(_FIXED_LOG_FILE)
        if changes:
            self._options = self._options._replace(**_parse_changes(changes))
            self._plan.enqueue(ConfigureLogging(self._options))
            self._introductions.change_log(self._options)
        settings = {key: getattr(self._options, name) for key, name in _FIELDS.items()}
        return {"log_file": self._file, **settings}


def _parse_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Check the changes; frontends have refused most errors before, in their protocol's words."""
    fields: dict[str, Any] = {}
    for key, value in changes.items():
        kind: type[Any] = (
            int if key == "log_verbose_level" else str if key == "log_format" else bool
        )
        if key not in _FIELDS or type(value) is not kind:
            raise InvalidArgument(
                f"unknown log setting, `zmqtriton-ctl log-settings` lists them: {key}"
            )
        if kind is str and value not in FORMS:
            raise InvalidArgument(f"invalid argument for --log_format, got: {value}")
        if kind is int and not 0 <= value < 2**32:
            raise InvalidArgument(f"the verbose level must be 0 to 2**32 - 1, not {value}")
        fields[_FIELDS[key]] = value
    return fields
