"""Control calls about canaries: their verbs and arguments. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from zmqtriton.supervisor.control.arguments import required_model_name
from zmqtriton.supervisor.control.verbs import (
    OWN_CALLER,
    ControlCall,
    Verb,
    Verbs,
    always,
    the_same,
)
from zmqtriton.supervisor.features.canaries.canary import Canary
from zmqtriton.supervisor.features.canaries.versions import stable_beside
from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.plan import Plan
from zmqtriton_floor.errors import InvalidArgument

#: Gets the description of the canary, or an error.
Answer = Callable[[Any], None]


class WaitingCallers(dict[str, Answer]):
    """The callers that wait for the begin or the end of a canary, by model."""

    def refuse(self, name: str, why: str) -> None:
        answer = self.pop(name, None)
        if answer is not None:
            answer(InvalidArgument(f"the canary of model '{name}' has not begun: {why}"))

    def answer(self, canary: Canary, plan: Plan) -> None:
        answer = self.pop(canary.model, None)
        if answer is not None:
            answer(canary.describe(plan.now_s))


class CalledRegistry(Protocol):
    """The canaries, as calls need them."""

    def start_canary(
        self, name: str, values: Mapping[str, Any], answer: Answer, stable: int = 0
    ) -> None: ...

    def change(self, name: str, values: Mapping[str, Any], answer: Answer) -> None: ...

    def promote(self, name: str, answer: Answer) -> None: ...

    def abort(self, name: str, answer: Answer) -> None: ...

    def describe_canaries(self, name: str = "") -> list[dict[str, Any]]: ...

    def compared(self, arguments: Mapping[str, Any]) -> None: ...


def canary_verbs(canaries: CalledRegistry, models: Mapping[str, Model]) -> Verbs:
    """Return the verbs; each is answered when it has taken effect."""

    def show(call: ControlCall) -> None:
        name = required_model_name(call.arguments) if "model" in call.arguments else ""
        call.answer(canaries.describe_canaries(name))

    def start_elsewhere(call: ControlCall) -> dict[str, Any]:
        # other versions may serve there
        model = models.get(_name(call))
        stable = 0 if model is None else stable_beside(model, call.arguments.get("version"))
        return {**call.arguments, "stable": stable}

    def take_comparisons(call: ControlCall) -> None:
        canaries.compared(call.arguments)
        call.answer(None)

    return {
        "canary.start": Verb(
            lambda call: canaries.start_canary(
                _name(call), _values(call), call.answer, _stable(call)
            ),
            needs_repository=True,
            changes=always,
            goes_over=start_elsewhere,
        ),
        "canary.change": Verb(
            lambda call: canaries.change(_name(call), _values(call), call.answer),
            changes=always,
            goes_over=the_same,
        ),
        "canary.promote": Verb(
            lambda call: canaries.promote(_name(call), call.answer),
            changes=always,
            goes_over=the_same,
        ),
        "canary.abort": Verb(
            lambda call: canaries.abort(_name(call), call.answer),
            changes=always,
            goes_over=the_same,
        ),
        "canary.status": Verb(show),
        "canary.compared": Verb(take_comparisons),
    }


def _name(call: ControlCall) -> str:
    return required_model_name(call.arguments)


def _values(call: ControlCall) -> dict[str, Any]:
    others = {"model", "stable"} if call.caller == OWN_CALLER else {"model"}
    return {key: value for key, value in call.arguments.items() if key not in others}


def _stable(call: ControlCall) -> int:
    """Return the version that serves at the server before; 0 if nobody takes over."""
    return int(call.arguments.get("stable", 0)) if call.caller == OWN_CALLER else 0
