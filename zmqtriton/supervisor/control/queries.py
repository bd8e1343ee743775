"""Control calls that are answered at once, from the server's state. Does no I/O."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

from zmqtriton.supervisor.control.server_status import ServerStatus
from zmqtriton.supervisor.control.verbs import ControlCall, Verb, Verbs
from zmqtriton.supervisor.models.model import ServedModel
from zmqtriton.supervisor.models.model_report import code_of, is_ready, serving_config
from zmqtriton.supervisor.settings import ServerInfo
from zmqtriton_floor.cache_keys import is_cached
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.routing import inside
from zmqtriton_floor.signature import takes_gpu


class QueriedServer(Protocol):
    """The server, as these calls need it."""

    models: dict[str, ServedModel]

    @property
    def is_open(self) -> bool:
        """True once clients can connect."""


class Queries:
    def __init__(self, server: QueriedServer, info: ServerInfo, status: ServerStatus) -> None:
        self._server = server
        self._info = info
        self._status = status

    @property
    def verbs(self) -> Verbs:
        info, status = self._info, self._status
        return {
            "ready": Verb(lambda call: self._is_ready(call.arguments), of_models=True),
            "is_open": Verb(lambda call: self._server.is_open),
            "takes_gpu": Verb(lambda call: takes_gpu(self._config(call.arguments)), of_models=True),
            "is_hashed": Verb(lambda call: self._is_hashed(call.arguments), of_models=True),
            "config": Verb(lambda call: self._config(call.arguments)),
            "code": Verb(lambda call: self._code(call.arguments)),
            "options": Verb(lambda call: info.options),
            "processes": Verb(lambda call: status.processes()),
            "loads": Verb(lambda call: status.loads()),
            "logs": Verb(lambda call: info.log_lines(*_log_range(call.arguments))),
            "logs.processes": Verb(
                lambda call: info.process_lines(ControlCall.optional_model_name(call.arguments))
            ),
        }

    def _is_ready(self, arguments: dict[str, Any]) -> bool:
        name, version = ControlCall.optional_model_name(arguments), _version(arguments)
        model = self._server.models.get(name)
        return model is not None and is_ready(model, version)

    def _config(self, arguments: dict[str, Any]) -> dict[str, Any]:
        name, version = ControlCall.optional_model_name(arguments), _version(arguments)
        return serving_config(self._server.models, name, version)

    def _code(self, arguments: dict[str, Any]) -> dict[str, Any]:
        models = (self._server.models.get(name) for name in arguments.get("models", ()))
        return {model.name: place for model in models if model and (place := code_of(model))}

    def _is_hashed(self, arguments: dict[str, Any]) -> bool:
        name, version = ControlCall.optional_model_name(arguments), _version(arguments)
        return any(
            map(is_cached, inside(partial(serving_config, self._server.models), name, version))
        )


def _log_range(arguments: dict[str, Any]) -> tuple[str, int, int]:
    """Parse a log range: the model, the line before its beginning, and the number of lines."""
    model, after = arguments.get("model", ""), arguments.get("after", 0)
    lines = arguments.get("lines", 100)
    if type(model) is not str or type(after) is not int or type(lines) is not int or lines < 1:
        raise InvalidArgument(
            "'model' must be a string; 'after' and 'lines' must be integers, 'lines' at least 1"
        )
    return model, after, lines


def _version(arguments: dict[str, Any]) -> int:
    version = arguments.get("version", -1)
    if type(version) is not int:
        raise InvalidArgument("the version of a model must be a number")
    return version
