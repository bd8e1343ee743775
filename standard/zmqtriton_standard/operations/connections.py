"""Calls of operators about clients' connections: a list of them, and their end.

Each process that serves clients is called, and answers for its own connections. Does no I/O.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

from zmqtriton.sdk.supervisor import ControlCall, Feature, Promise, Verb, actions
from zmqtriton.sdk.wire import InvalidArgument, ZmqTritonError, wire

#: Roles of the processes that clients on other machines connect to.
_ROLES = frozenset({"http", "grpc"})
_VERB = "connections"
_SETTINGS = frozenset({"address", "token", "end"})
#: Seconds that a process has for its answer.
_WITHIN_S = 5.0


class ConnectionCalls(Feature):
    @property
    def verbs(self) -> Mapping[str, Verb]:
        return {_VERB: Verb(self._ask, changes=lambda arguments: bool(arguments.get("end")))}

    async def _ask(self, call: ControlCall) -> dict[str, Any]:
        _check(call.arguments)
        document = json.dumps(call.arguments)
        answers: list[Promise[wire.CallResult]] = [
            self._plan.ask(partial(_question, serial, document), within_s=_WITHIN_S)
            for serial in self._audience.serials(_ROLES)
        ]
        for answer in answers:  # all were asked; the others answer meanwhile
            with suppress(ZmqTritonError):
                await answer
        results = [answer.value for answer in answers if not answer.error]
        rows = [json.loads(result.result) for result in results if not result.code]
        return {"connections": [*chain(*rows)], "silent_processes": len(answers) - len(rows)}


def _question(serial: int, document: str, ticket: int) -> actions.Send:
    return actions.Send(serial, wire.Call(ticket, _VERB, document))


def _check(arguments: dict[str, Any]) -> None:
    ControlCall.check_names("a call about connections", arguments, _SETTINGS)
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
