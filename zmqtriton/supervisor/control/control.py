"""Control calls of frontends and of zmqtriton-ctl: their arguments, answers and Triton's texts.

Passes well-formed calls on to the parts of the core and turns their results into answers. Does no
I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from zmqtriton.environments.demand import Host
from zmqtriton.supervisor.actions import LoadOverride, Send
from zmqtriton.supervisor.control import regions, repositories, server_status
from zmqtriton.supervisor.control.arguments import optional_model_name, required_model_name
from zmqtriton.supervisor.control.controlled_server import ControlledServer
from zmqtriton.supervisor.control.immediate_calls import IMMEDIATE_CALLS
from zmqtriton.supervisor.features.canaries import canary_calls
from zmqtriton.supervisor.features.draining import draining
from zmqtriton.supervisor.features.on_demand import on_demand
from zmqtriton.supervisor.features.reloading import reload_calls
from zmqtriton.supervisor.features.scaling import scaling_calls
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes import metrics_process, readiness
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument, Unavailable, ZmqTritonError

#: Triton's text, in whichever mode the server is.
NOT_EXPLICIT = "explicit model load / unload is not allowed if polling is enabled"
_MAX_TEXT = 1 << 16
#: The calls that load, and are allowed in every model control mode.
_VERBS_OF_OPERATORS = frozenset({"restart", reload_calls.VERB})
#: The calls that need a repository.
_VERBS_FOR_REPOSITORIES = frozenset(
    {"index", "load", "unload", *_VERBS_OF_OPERATORS, on_demand.VERB, canary_calls.START}
)
#: The calls that a model's code may make.
_VERBS_FOR_MODELS = frozenset({"load", "unload", "ready", "takes_gpu", "is_hashed"})


class _Part(Protocol):
    """A part that handles its calls by itself."""

    def handle(self, verb: str, arguments: dict[str, Any], answer: Callable[[Any], None]) -> None:
        """Answer a call, now or later. Raises ZmqTritonError."""


_PARTS: tuple[tuple[frozenset[str], Callable[[ControlledServer], _Part]], ...] = (
    (draining.VERBS, lambda server: server.draining),
    (metrics_process.VERBS, lambda server: server.metrics_process),
    (repositories.VERBS, lambda server: server.repositories),
)


class ControlCallHandler:
    def __init__(self, plan: Plan, served: ControlledServer, *, is_explicit: bool) -> None:
        self._plan = plan
        self._server = served
        self._is_explicit = is_explicit
        self._reloading = reload_calls.Reloading(served, is_explicit=is_explicit)

    def handle(self, caller: int, call: wire.Call) -> None:
        """Answer the caller, now or later, exactly once."""
        try:
            arguments = _parse(call.arguments)
            if call.verb not in _VERBS_FOR_MODELS and self._server.is_stub(caller):
                raise InvalidArgument(f"a model may not call '{call.verb}'")
            if call.verb in _VERBS_FOR_REPOSITORIES and self._server.startup.is_repository_missing:
                raise Unavailable("Server not ready")
            if call.verb == "index":
                self._index(caller, call.id, arguments)
            elif call.verb == "load":
                self._handle_load(caller, call.id, arguments)
            elif call.verb == "unload":
                self._unload(caller, call.id, arguments)
            elif call.verb in _VERBS_OF_OPERATORS:
                self._operate(call.verb, arguments, self._responder(caller, call.id))
            elif call.verb == "status":
                self._server.status.request(self._responder(caller, call.id))
            elif call.verb in IMMEDIATE_CALLS:
                self._send_result(
                    caller, call.id, IMMEDIATE_CALLS[call.verb](self._server, arguments)
                )
            else:
                self._pass_on(caller, call.verb, arguments, self._responder(caller, call.id))
        except ZmqTritonError as error:
            self._send_error(caller, call.id, error)

    def _pass_on(
        self, caller: int, verb: str, arguments: dict[str, Any], answer: Callable[[Any], None]
    ) -> None:
        """Pass the call on to the part that answers it."""
        if verb == on_demand.VERB:
            self._server.on_demand_loader.request_load(required_model_name(arguments), answer)
        elif verb == readiness.VERB:
            self._server.readiness.handle(arguments, answer)
        elif verb in regions.VERBS:
            self._server.regions.handle(caller, verb, arguments, answer)
        elif verb == server_status.CLIENT_MEMORY:
            self._server.status.client_memory_reported(caller, arguments)
            answer(None)
        elif verb in scaling_calls.VERBS:
            if self._server.is_stopping:
                raise Unavailable("Server exiting")
            self._server.steering.handle(verb, arguments, answer)
        elif verb in canary_calls.VERBS:
            canary_calls.handle(self._server.canaries, verb, arguments, answer)
        else:
            part = next((part for verbs, part in _PARTS if verb in verbs), None)
            if part is None:
                raise InvalidArgument(f"unknown control call '{verb}'")
            part(self._server).handle(verb, arguments, answer)

    def _index(self, caller: int, call_id: int, arguments: dict[str, Any]) -> None:
        only_ready = bool(arguments.get("ready", False))

        def answer(entries: list[dict[str, Any]]) -> None:
            wanted = [e for e in entries if not only_ready or e.get("state") == "READY"]
            self._send_result(caller, call_id, wanted)

        self._server.request_index(answer)

    def _handle_load(self, caller: int, call_id: int, arguments: dict[str, Any]) -> None:
        staged, answer = self._server.staged_files, self._responder(caller, call_id)
        directory = staged.claim(caller, arguments.get("files", {}))

        def done(error: ZmqTritonError | None) -> None:
            staged.load_ended(directory)
            answer(error)

        try:
            host = self._host(caller, arguments.get("binding"))
            self._check_loading_allowed(is_bound=host is not None)
            model = required_model_name(arguments)
            override = _override(arguments, directory, host)
            ended = self._server.nested_loads.register(caller, model, done)
        except ZmqTritonError as error:
            done(error)
        else:
            self._server.load(model, override, ended)

    def _host(self, caller: int, binding: Any) -> Host | None:
        """Parse who is to run the model; None if that is the server itself."""
        if binding is None:
            return None
        if type(binding) is not int or binding < 0 or not self._server.is_guest(caller):
            raise InvalidArgument("only a process that takes part in the server can bind a model")
        return Host(caller, binding)

    def _unload(self, caller: int, call_id: int, arguments: dict[str, Any]) -> None:
        is_bound = self._server.is_bound_by(caller, optional_model_name(arguments))
        self._check_loading_allowed(is_bound=is_bound)
        dependents = arguments.get("unload_dependents", False)
        if not isinstance(dependents, bool):
            raise InvalidArgument("Unable to parse 'unload_dependents': it must be a boolean")
        self._server.unload(
            required_model_name(arguments), dependents, self._responder(caller, call_id)
        )

    def _operate(self, verb: str, arguments: dict[str, Any], answer: Callable[[Any], None]) -> None:
        if self._server.is_stopping:
            raise Unavailable("Server exiting")
        if verb == reload_calls.VERB:
            self._reloading.reload(optional_model_name(arguments), answer)
        else:
            self._server.operator_commands.restart(required_model_name(arguments), answer)

    def _check_loading_allowed(self, *, is_bound: bool) -> None:
        if self._server.is_stopping:
            raise Unavailable("Server exiting")
        if not (self._is_explicit or is_bound):
            raise Unavailable(NOT_EXPLICIT + repositories.HOW_TO_BE_EXPLICIT)

    def _responder(self, caller: int, call_id: int) -> Callable[[Any], None]:
        def answer(result: Any) -> None:
            if isinstance(result, ZmqTritonError):
                self._send_error(caller, call_id, result)
            elif isinstance(result, wire.CallResult):
                self._plan.enqueue(Send(caller, result._replace(id=call_id)))
            else:
                self._send_result(caller, call_id, result)

        return answer

    def _send_result(self, caller: int, call_id: int, result: Any) -> None:
        self._plan.enqueue(Send(caller, wire.CallResult(call_id, 0, "", json.dumps(result))))

    def _send_error(self, caller: int, call_id: int, error: ZmqTritonError) -> None:
        answer = wire.CallResult(call_id, error.number, error.text[:_MAX_TEXT], "null")
        self._plan.enqueue(Send(caller, answer))


def _parse(document: str) -> dict[str, Any]:
    try:
        arguments = json.loads(document)
        if "\\u" in document:
            # JSON can escape half of a surrogate pair, which cannot be encoded and sent afterwards.
            json.dumps(arguments, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise InvalidArgument("the arguments of a control call must be a JSON object")
    return arguments


def _override(arguments: dict[str, Any], directory: str, host: Host | None) -> LoadOverride | None:
    """Parse what a load brings along; the directory is "" if no files came with it."""
    parameters, files = arguments.get("parameters") or {}, arguments.get("files")
    if not isinstance(parameters, dict):
        raise InvalidArgument("the parameters of a load must be an object")
    for key in parameters:
        if key != "config":
            raise InvalidArgument(f"unrecognized load parameter '{key}'.")
    override = parameters.get("config")
    if files and override is None:
        raise InvalidArgument("Load parameter 'config' must be specified for model file override")
    if files and not directory:
        raise InvalidArgument(str(files.get("refusal")))
    if host is not None and not directory:
        raise InvalidArgument("a model that is bound comes with its files")
    if override is None:
        return None
    if not isinstance(override, str):
        raise InvalidArgument("Invalid config override: it must be a string of JSON")
    return LoadOverride(override, directory, host)
