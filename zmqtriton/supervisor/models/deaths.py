"""The log records of dead stubs."""

from __future__ import annotations

from typing import Any

from zmqtriton.supervisor import states
from zmqtriton.supervisor.models.failure_text import shorten
from zmqtriton.supervisor.models.instance import Instance
from zmqtriton.supervisor.models.instance_set import describe_giving_up
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.states import InstanceState


def log_death(
    plan: Plan,
    label: str,
    instance: Instance,
    event: states.ProcessExited,
    before: InstanceState,
) -> None:
    """Log a death, unless it was asked for.

    `label` names the version, `before` is the state in which the stub died.
    """
    death = instance.death_reason
    about: dict[str, Any] = {
        "model": instance.model,
        "version": instance.version,
        "instance": instance.name,
    }
    text = shorten(death.text if death else "")
    what = f"stub '{instance.name}' of {label} has died: {text}"
    if instance.state is InstanceState.FAILED and instance.can_restart:
        plan.log("E", f"{what}; {describe_giving_up(instance)}", **about)
    elif instance.state is InstanceState.BACKOFF:
        plan.log("W", f"{what}; it is started again", **about)
    elif before is InstanceState.DRAINING or (
        before is InstanceState.STOPPING and death != event.reason
    ):
        plan.log("W", what, **about)
