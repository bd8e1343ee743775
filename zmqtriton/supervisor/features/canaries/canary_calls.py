"""Control calls about canaries: their verbs and arguments. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zmqtriton.supervisor.control.arguments import required_model_name
from zmqtriton.supervisor.features.canaries.registry import CanaryRegistry

START, CHANGE, PROMOTE = "canary.start", "canary.change", "canary.promote"
ABORT, STATUS, COMPARED = "canary.abort", "canary.status", "canary.compared"
VERBS = frozenset({START, CHANGE, PROMOTE, ABORT, STATUS, COMPARED})


def handle(
    canaries: CanaryRegistry, verb: str, arguments: dict[str, Any], answer: Callable[[Any], None]
) -> None:
    """Answer a call, now or when it has taken effect. Raises ZmqTritonError."""
    if verb == STATUS:
        name = required_model_name(arguments) if "model" in arguments else ""
        answer(canaries.describe(name))
        return
    if verb == COMPARED:
        canaries.compared(arguments)
        answer(None)
        return
    name = required_model_name(arguments)
    values = {key: value for key, value in arguments.items() if key != "model"}
    if verb == START:
        canaries.start(name, values, answer)
    elif verb == CHANGE:
        canaries.change(name, values, answer)
    elif verb == PROMOTE:
        canaries.promote(name, answer)
    else:
        canaries.abort(name, answer)
