"""The log settings: the options at start, then the changes by clients.

Asked through `control.py`. A change reaches every process over its lifeline; processes that start
later get it with their Bootstrap. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zmqtriton.supervisor.actions import ConfigureLogging
from zmqtriton.supervisor.control.arguments import changes_of
from zmqtriton.supervisor.control.verbs import (
    RepeatedCall,
    Verb,
    Verbs,
    at_once,
    has_changes,
    the_same_changes,
)
from zmqtriton.supervisor.features.feature import CoreParts, Feature
from zmqtriton_floor.errors import InvalidArgument, Unsupported
from zmqtriton_floor.logs import FORMS, LogOptions

_FIXED_FILE = "log file location can not be updated through network protocol"
_FIELDS = {
    "log_info": "info",
    "log_warning": "warning",
    "log_error": "error",
    "log_verbose_level": "verbose",
    "log_format": "form",
}


class LogSettings(Feature):
    def __init__(self, core: CoreParts) -> None:
        self._plan = core.plan
        self._introductions = core.introductions
        self._file = core.info.settings.log_file
        self._options = self._initial = core.info.settings.broker.log

    def repeated_calls(self) -> Iterable[RepeatedCall]:
        """Return the settings that are not those of the start."""
        names = {name: key for key, name in _FIELDS.items()}
        now, before = self._options._asdict(), self._initial._asdict()
        changes = {names[n]: value for n, value in now.items() if value != before[n]}
        return [("log.settings", {"changes": changes})] if changes else []

    @property
    def verbs(self) -> Verbs:
        return {
            "log.settings": Verb(
                at_once(lambda arguments: self.update(changes_of(arguments))),
                changes=has_changes,
                goes_over=the_same_changes,
            )
        }

    def update(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Apply all of these changes or none, and return the settings."""
        if "log_file" in changes:
            raise Unsupported(_FIXED_FILE)
        if changes:
            self._apply(self._options._replace(**_parse_changes(changes)))
        return self._describe()

    def _apply(self, options: LogOptions) -> None:
        self._options = options
        self._plan.enqueue(ConfigureLogging(options))
        self._introductions.change_log(options)

    def _describe(self) -> dict[str, Any]:
        options = self._options
        return {
            "log_file": self._file,
            "log_info": options.info,
            "log_warning": options.warning,
            "log_error": options.error,
            "log_verbose_level": options.verbose,
            "log_format": options.form,
        }


def _parse_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Check the changes; frontends have refused most errors in their protocol's words before."""
    fields: dict[str, Any] = {}
    for key, value in changes.items():
        kind: type[Any] = (
            int if key == "log_verbose_level" else str if key == "log_format" else bool
        )
        if key not in _FIELDS or type(value) is not kind:
            raise InvalidArgument(f"there is no such log setting: {key}")
        if kind is str and value not in FORMS:
            raise InvalidArgument(f"invalid argument for --log_format, got: {value}")
        if kind is int and not 0 <= value < 2**32:
            raise InvalidArgument(f"the verbose level is out of range: {value}")
        fields[_FIELDS[key]] = value
    return fields
