"""Asks stubs where they are: each writes the Python stacks of its threads, whatever it is doing.

Called for `zmqtriton-ctl stacks`. What they write comes with their other output into the log, where
whoever asked finds it. Does no I/O.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import Any

from zmqtriton.supervisor.actions import Signal
from zmqtriton.supervisor.generation import Generation
from zmqtriton.supervisor.plan import Plan

#: One that is ignored by who has not prepared for it yet.
SHOW_STACKS = signal.SIGURG


def ask_stacks(plan: Plan, generations: Iterable[Generation], model: str) -> list[dict[str, Any]]:
    """The stubs of the model that were asked."""
    asked = []
    for generation in generations:
        for instance in generation.instances if generation.blueprint.name == model else ():
            if instance.pid:
                plan.do(Signal(instance.serial, int(SHOW_STACKS)))
                state = instance.state.value
                asked.append({"instance": instance.name, "pid": instance.pid, "state": state})
    return asked
