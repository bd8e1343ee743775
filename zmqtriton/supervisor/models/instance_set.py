"""The instances of one generation as a whole."""

from __future__ import annotations

from zmqtriton.supervisor.backoff import MAX_DEATHS
from zmqtriton.supervisor.models.failure_text import shorten
from zmqtriton.supervisor.models.instance import Instance
from zmqtriton.supervisor.states import InstanceState
from zmqtriton_floor.reasons import Kind, Reason


def describe_giving_up(instance: Instance) -> str:
    """Return after how much an instance was given up, and when it is tried again."""
    text = f"given up after {instance.recent_deaths} deaths"
    pause_s = instance.retry_after_s
    return f"{text}, tried again every {pause_s:g} s" if pause_s else text


def _downtime(instance: Instance, death: Reason) -> Reason:
    """Return why an instance is not there that has died: what becomes of it."""
    text, deaths = f"instance '{instance.name}': {shorten(death.text)}", instance.recent_deaths
    if instance.is_given_up:
        return Reason.of(
            Kind.GIVEN_UP,
            f"{text} ({describe_giving_up(instance)})",
            death,
            instance=instance.name,
            deaths=deaths,
            retry_after_s=instance.retry_after_s,
        )
    return Reason.of(
        Kind.RESTARTING,
        f"{text}, restarting ({deaths}/{MAX_DEATHS})",
        death,
        instance=instance.name,
        deaths=deaths,
        max_deaths=MAX_DEATHS,
    )


class InstanceSet(list[Instance]):
    """All instances, in the order of their slots."""

    @property
    def active(self) -> list[Instance]:
        """The instances that may be given requests."""
        return [instance for instance in self if not instance.slot.is_passive]

    @property
    def staying(self) -> list[Instance]:
        """The instances that no change of the generation is removing."""
        return [instance for instance in self if not instance.is_being_removed]

    @property
    def ready(self) -> list[Instance]:
        """The instances that can execute."""
        return [i for i in self.active if i.state is InstanceState.READY]

    @property
    def ready_count(self) -> int:
        return len(self.ready)

    @property
    def is_one_loading(self) -> bool:
        return any(i.is_alive and i.state is not InstanceState.READY for i in self)

    @property
    def have_all_failed(self) -> bool:
        return {i.state for i in self.active if not i.is_being_removed} == {InstanceState.FAILED}

    @property
    def why_not_ready(self) -> Reason | None:
        """Return why no instance is ready; None if one is, or none has died."""
        if self.ready_count:
            return None
        return next((_downtime(i, i.death_reason) for i in self.active if i.death_reason), None)

    def with_is_ready(self) -> list[Instance]:
        """Return the ready instances whose models must be asked, too."""
        return [instance for instance in self.ready if instance.has_is_ready]

    def find(self, serial: int) -> Instance | None:
        return next((i for i in self if i.serial == serial), None)

    def discard_removed(self) -> None:
        """Forget those that were to be removed and have ended."""
        ended = (InstanceState.STOPPED, InstanceState.FAILED)
        self[:] = [i for i in self if not (i.is_being_removed and i.state in ended)]
