"""Control calls of frontends and of zmqtriton-ctl: their permissions, and their answers.

Passes well-formed calls to the part that the table names for their verb. Knows no verb. Does no
I/O.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Iterable
from typing import Any, Protocol

from zmqtriton.supervisor.actions import Send
from zmqtriton.supervisor.control.succession import Succession
from zmqtriton.supervisor.control.verbs import BY_ACTION, OWN_CALLER, ControlCall, Verb, Verbs
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument, Unavailable, ZmqTritonError

_MAX_TEXT = 1 << 16
#: Maximum letters of a change's arguments in the log; a model's files are never logged.
_MAX_TOLD = 200
_UNTOLD = frozenset({"model", "parameters", "files", "staged"})


class ControlledServer(Protocol):
    """The state of the server, which may make it refuse calls."""

    @property
    def is_stopping(self) -> bool:
        """True once no new work may begin."""

    @property
    def is_repository_missing(self) -> bool:
        """True while no model can be served, because there is no repository."""

    def model_of(self, caller: int) -> str:
        """Return the model whose process calls, or ""."""


class ControlCallHandler:
    def __init__(
        self,
        plan: Plan,
        server: ControlledServer,
        tables: Iterable[Verbs],
        succession: Succession,
    ) -> None:
        """Set up with the verbs of all tables. Raises ValueError for a verb in two tables."""
        self._plan = plan
        self._server = server
        self._succession = succession
        self._verbs: dict[str, Verb] = {}
        for table in tables:
            twice = self._verbs.keys() & table.keys()
            if twice:
                raise ValueError(f"two tables answer the control calls {sorted(twice)}")
            self._verbs.update(table)

    def handle(self, caller: int, message: wire.Call) -> None:
        """Answer the caller, now or later, exactly once."""
        self._plan.tell(self._answer(caller, message))

    async def _answer(self, caller: int, message: wire.Call) -> None:
        try:
            result = await self._perform(caller, message)
        except ZmqTritonError as error:
            result = wire.CallResult(message.id, error.number, error.text[:_MAX_TEXT], "null")
        if result is not BY_ACTION:
            if not isinstance(result, wire.CallResult):
                result = wire.CallResult(message.id, 0, "", json.dumps(result))
            self._plan.enqueue(Send(caller, result._replace(id=message.id)))

    async def _perform(self, caller: int, message: wire.Call) -> Any:
        """Perform a call; during a take-over, send changes of state to both servers."""
        arguments, name = _parse(message.arguments), message.verb
        model = self._server.model_of(caller)
        verb = self._find(model, name)
        if verb.changes(arguments):
            text = _describe(name, arguments, f"model '{model}'" if model else message.client)
            self._plan.log("I", text, model=str(arguments.get("model") or ""), is_of_client=True)
        call = ControlCall(caller, arguments, message.id)
        succession, there = self._succession, verb.goes_over(call)
        if there is None:
            return await _result_of(verb, call)
        if succession.is_other(caller):
            await succession.turn()
            return await self.perform(name, arguments)
        if succession.is_for_other_alone(name) and not model:
            return await succession.ask_other(name, there)
        try:
            result = await _result_of(verb, call)
        except ZmqTritonError:
            if not succession.is_for_other_alone(name):
                raise
            return await succession.ask_other(name, there)  # it was under way
        await succession.tell_other(name, there)
        return result

    def perform(self, verb: str, arguments: dict[str, Any]) -> Promise[Any]:
        """Perform a call of this server's own."""
        return self._plan.tell(self._perform_own(verb, arguments))

    async def _perform_own(self, verb: str, arguments: dict[str, Any]) -> Any:
        if verb not in self._verbs:
            raise InvalidArgument(f"unknown control call '{verb}'")
        return await _result_of(self._verbs[verb], ControlCall(OWN_CALLER, arguments))

    def _find(self, model: str, name: str) -> Verb:
        """Return the verb. Raises ZmqTritonError if the caller may not use it now."""
        verb = self._verbs.get(name)
        if (verb is None or not verb.of_models) and model:
            raise InvalidArgument(f"a model may not call '{name}': call it from a client")
        if verb is None:
            raise InvalidArgument(
                f"unknown control call '{name}'; use the zmqtriton-ctl of the server's version"
            )
        if verb.needs_repository and self._server.is_repository_missing:
            raise Unavailable("Server not ready")
        if (
            verb.of_operators
            and self._server.is_stopping
            and not self._succession.is_for_other_alone(name)
        ):
            raise Unavailable("Server exiting")
        return verb


async def _result_of(verb: Verb, call: ControlCall) -> Any:
    result = verb.handle(call)
    return await result if isinstance(result, Awaitable) else result


def _describe(verb: str, arguments: dict[str, Any], client: str) -> str:
    """Describe a change for the log, without the files of a model."""
    rest = {key: value for key, value in arguments.items() if key not in _UNTOLD and value}
    document = json.dumps(rest) if rest else ""
    if len(document) > _MAX_TOLD:
        document = f"{document[:_MAX_TOLD]} …"
    name = arguments.get("model")
    words = [verb, f"'{name}'" if name else "", document, f"for {client or 'an unknown client'}"]
    return " ".join(filter(None, words))


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
