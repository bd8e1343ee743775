"""Calls of operators about clients' connections: a list of them, and their end.

Each process that serves clients is called, and answers for its own connections. Does no I/O.
"""

from __future__ import annotations

import ipaddress
import itertools
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from zmqtriton.roles import GRPC, HTTP
from zmqtriton.supervisor.actions import Send
from zmqtriton.supervisor.control.verbs import ControlCall, Verb, Verbs, check_names
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument

#: Roles of the processes that clients on other machines connect to.
ROLES = frozenset({HTTP, GRPC})
_VERB = "connections"
_SETTINGS = frozenset({"address", "token", "end"})
#: Seconds that a process has for its answer.
WITHIN_S = 5.0


@dataclass
class _Question:
    #: Serials of the processes that have not answered.
    missing: set[int]
    rows: list[dict[str, Any]] = field(default_factory=list)
    answer: Promise[dict[str, Any]] = field(default_factory=Promise)


class CalledPeers(Protocol):
    def serials(self, roles: Collection[str]) -> list[int]:
        """Return the processes of some roles that run."""


class ConnectionCalls:
    def __init__(self, plan: Plan, peers: CalledPeers) -> None:
        self._plan = plan
        self._peers = peers
        self._numbers = itertools.count(1)
        self._open: dict[int, _Question] = {}

    @property
    def verbs(self) -> Verbs:
        return {_VERB: Verb(self._ask, changes=lambda arguments: bool(arguments.get("end")))}

    def _ask(self, call: ControlCall) -> Promise[dict[str, Any]]:
        _check(call.arguments)
        number = next(self._numbers)
        question = _Question({*self._peers.serials(ROLES)})
        self._open[number] = question
        document = json.dumps(call.arguments)
        self._plan.enqueue(
            *(Send(serial, wire.Call(number, _VERB, document)) for serial in question.missing)
        )
        self._plan.call_later(WITHIN_S, partial(self._answer, number))
        if not question.missing:
            self._answer(number)
        return question.answer

    def handle_result(self, serial: int, result: wire.CallResult) -> None:
        question = self._open.get(result.id)
        if question is None or serial not in question.missing:
            return  # it comes too late
        if not result.code:
            question.missing.discard(serial)
            question.rows += json.loads(result.result)
        if not question.missing:
            self._answer(result.id)

    def _answer(self, number: int) -> None:
        question = self._open.pop(number, None)
        if question is not None:
            silent = len(question.missing)
            question.answer({"connections": question.rows, "silent_processes": silent})


def _check(arguments: dict[str, Any]) -> None:
    check_names("a call about connections", arguments, _SETTINGS)
    address, token = arguments.get("address", ""), arguments.get("token", "")
    ends = arguments.get("end", False)
    if type(address) is not str or type(token) is not str or type(ends) is not bool:
        raise InvalidArgument("'address' and 'token' must be strings, and 'end' a boolean")
    if address:
        try:
            ipaddress.ip_network(address, strict=False)
        except ValueError:
            raise InvalidArgument(
                f"'{address}' must be an IP address, or a network such as 10.0.0.0/8"
            ) from None
    if ends and not (address or token):
        raise InvalidArgument("name the client whose connections must end: an address or a token")
