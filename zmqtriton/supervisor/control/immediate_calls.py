"""Control calls that are answered at once, from what the server knows. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from zmqtriton.supervisor.control.arguments import optional_model_name
from zmqtriton.supervisor.control.log_settings import LogSettings
from zmqtriton.supervisor.control.operations import OperatorCommands
from zmqtriton.supervisor.control.server_status import ServerStatus
from zmqtriton.supervisor.control.trace_settings import TraceSettings
from zmqtriton_floor.cache_keys import is_cached
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.members import inside
from zmqtriton_floor.signature import takes_gpu


class KnowingServer(Protocol):
    """The server, as these calls need it."""

    @property
    def is_open(self) -> bool:
        """True once clients can connect."""

    def is_model_ready(self, model: str, version: int) -> bool:
        """True if the model can execute now; version -1 means any."""

    @property
    def status(self) -> ServerStatus:
        """The server, its processes and their state."""

    @property
    def operator_commands(self) -> OperatorCommands:
        """The commands of operators for models."""

    def serving_config(self, model: str, version: int) -> dict[str, Any]:
        """Return the configuration of the serving version, with -1 of the highest.

        "" if none serves.
        """

    @property
    def log_lines(self) -> Callable[[str, int, int], dict[str, Any]]:
        """The last lines of the log: (model or "", after which line, how many)."""

    @property
    def process_lines(self) -> Callable[[str], list[dict[str, Any]]]:
        """The last lines of each process of a model, "" for all, also of those that died."""

    @property
    def options(self) -> Sequence[dict[str, Any]]:
        """The options that the server was started with, without secrets."""

    @property
    def log_settings(self) -> LogSettings:
        """The log settings."""

    @property
    def trace_settings(self) -> TraceSettings:
        """The trace settings."""


def _log_range(arguments: dict[str, Any]) -> tuple[str, int, int]:
    """Parse a log range: the model, the line after which it begins, and the number of lines."""
    model, after = arguments.get("model", ""), arguments.get("after", 0)
    lines = arguments.get("lines", 100)
    if type(model) is not str or type(after) is not int or type(lines) is not int or lines < 1:
        raise InvalidArgument(
            "'model' must be a string; 'after' and 'lines' must be integers, 'lines' at least 1"
        )
    return model, after, lines


def _changes(arguments: dict[str, Any]) -> dict[str, Any]:
    changes = arguments.get("changes", {})
    if type(changes) is not dict:
        raise InvalidArgument("changes of settings must be an object")
    return changes


def _version(arguments: dict[str, Any]) -> int:
    version = arguments.get("version", -1)
    if type(version) is not int:
        raise InvalidArgument("the version of a model must be a number")
    return version


def _serving_config(served: KnowingServer, given: dict[str, Any]) -> dict[str, Any]:
    return served.serving_config(optional_model_name(given), _version(given))


#: Calls that are answered without waiting.
IMMEDIATE_CALLS: dict[str, Callable[[KnowingServer, dict[str, Any]], Any]] = {
    "ready": lambda served, given: served.is_model_ready(
        optional_model_name(given), _version(given)
    ),
    "is_open": lambda served, given: served.is_open,
    "takes_gpu": lambda served, given: takes_gpu(_serving_config(served, given)),
    "is_hashed": lambda served, given: any(
        map(is_cached, inside(served.serving_config, optional_model_name(given), _version(given)))
    ),
    "config": lambda served, given: _serving_config(served, given),
    "options": lambda served, given: served.options,
    "processes": lambda served, given: served.status.processes(),
    "loads": lambda served, given: served.status.loads(),
    "logs": lambda served, given: served.log_lines(*_log_range(given)),
    "logs.processes": lambda served, given: served.process_lines(optional_model_name(given)),
    "stacks": lambda served, given: served.operator_commands.dump_stacks(
        optional_model_name(given)
    ),
    "log.settings": lambda served, given: served.log_settings.update(_changes(given)),
    "trace.settings": lambda served, given: served.trace_settings.update(
        optional_model_name(given), _changes(given)
    ),
}
