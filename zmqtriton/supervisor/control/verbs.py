"""The table of control calls: the answer to each verb, and the callers that may use it.

The parts of the core and the features name their verbs; `control.py` has the whole table. This
module has only types, and the common parts of several tables, such as common arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from zmqtriton_floor.descriptions import described
from zmqtriton_floor.errors import InvalidArgument

#: A verb and its arguments: a call that a server that takes over repeats to get the same state.
RepeatedCall = tuple[str, dict[str, Any]]
#: Returned for a call that an action answers.
BY_ACTION = object()
#: Advice that is appended to Triton's texts, which clients may look for.
HOW_TO_BE_EXPLICIT = ". Start the server with --model-control-mode=explicit"
#: The server itself, in place of the serial of a process.
OWN_CALLER = 0


class ControlCall(NamedTuple):
    """A call whose arguments are well-formed."""

    #: The serial of the calling process, or of the caller on the control socket.
    caller: int
    arguments: dict[str, Any]
    #: The number that the caller has given it.
    id: int = 0

    @property
    def is_of_server(self) -> bool:
        """True if the server itself calls."""
        return self.caller == OWN_CALLER

    @property
    def changes(self) -> dict[str, Any]:
        """Return the changes of settings. Raises InvalidArgument."""
        changes = self.arguments.get("changes", {})
        if type(changes) is not dict:
            raise InvalidArgument("changes of settings must be an object")
        return changes

    @staticmethod
    def required_model_name(arguments: Mapping[str, Any]) -> str:
        """Return the name of the model. Raises InvalidArgument for an impossible one."""
        name = ControlCall.optional_model_name(arguments)
        if not name:
            raise InvalidArgument(
                "Model name cannot be empty. Please enter a valid name to deploy."
            )
        if "/" in name or "\\" in name or "\0" in name or name in (".", ".."):
            raise InvalidArgument(
                f"invalid model name '{name}', model name must not contain path traversal "
                "characters"
            )
        return name

    @staticmethod
    def optional_model_name(arguments: Mapping[str, Any]) -> str:
        """Return the name of a model; "" if none is named. Raises InvalidArgument."""
        name = arguments.get("model", "")
        if type(name) is not str:
            raise InvalidArgument(f"the name of a model must be a string, got {described(name)}")
        return name

    @staticmethod
    def check_names(what: str, arguments: Mapping[str, Any], settings: Collection[str]) -> None:
        """Raise InvalidArgument for an argument without a meaning, which is a spelling mistake."""
        for name in arguments:
            if name not in settings:
                raise InvalidArgument(
                    f"{what} has no setting '{name}'; there are {', '.join(sorted(settings))}"
                )


class Verb(NamedTuple):
    #: Returns the answer to a call, or a promise or coroutine with it, or BY_ACTION. Raises or
    #: returns a ZmqTritonError in place of an answer.
    handle: Callable[[ControlCall], Any]
    #: True if it is refused while the server waits for its repository.
    needs_repository: bool = False
    #: The code of a model may call it.
    of_models: bool = False
    #: Operators change by it what serves, in every model control mode; not once the server stops.
    of_operators: bool = False
    #: Returns whether a call with these arguments changes something; such calls are logged.
    changes: Callable[[dict[str, Any]], bool] = lambda arguments: False
    #: Returns the arguments of the call for the other server during a take-over; None for no call.
    goes_over: Callable[[ControlCall], dict[str, Any] | None] = lambda call: None

    def of_settings(self) -> Verb:
        """Return the verb of a call that changes settings; without changes it shows them."""
        return self._replace(
            changes=lambda arguments: bool(arguments.get("changes")),
            goes_over=lambda call: call.arguments if call.arguments.get("changes") else None,
        )

    @staticmethod
    def always(arguments: dict[str, Any]) -> bool:
        return True

    @staticmethod
    def the_same(call: ControlCall) -> dict[str, Any]:
        """Repeat a call, with its arguments, at a server that takes over."""
        return call.arguments


Verbs = Mapping[str, Verb]
