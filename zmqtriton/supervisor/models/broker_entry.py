"""A generation's entry at the broker."""

from __future__ import annotations

from collections.abc import Iterable

from zmqtriton.supervisor.models.failure_text import shorten
from zmqtriton.supervisor.models.instance import Instance
from zmqtriton.supervisor.server_processes.introductions import Introductions
from zmqtriton_floor import wire
from zmqtriton_floor.reasons import Reason


class BrokerEntry:
    """Announces a generation and its instances to the broker, and takes them back."""

    def __init__(self, introductions: Introductions, number: int, model: str, version: int) -> None:
        self._introductions = introductions
        self._number = number
        self._model = model
        self._version = version
        self.is_announced = False

    def announce(self, config: str, instances: Iterable[Instance] = ()) -> None:
        """Announce the generation with these instances, or its new configuration."""
        self.is_announced = True
        message = wire.AddGeneration(self._number, self._model, self._version, config)
        self._introductions.send_to_broker(message)
        for instance in instances:
            self.attach(instance)

    def attach(self, instance: Instance) -> None:
        """Let the instance get requests."""
        needs = self._introductions.resources.needs_for_broker(instance.slot.resources)
        message = wire.AttachInstance(self._number, instance.serial, instance.name, needs)
        self._introductions.send_to_broker(message)

    def retire(self, instance: Instance | None = None) -> None:
        """Let the instance, or all of them, get no further requests."""
        if self.is_announced:
            numbers = (self._number,) if instance is None else (self._number, instance.serial)
            self._introductions.send_to_broker(wire.Retire(*numbers))

    def remove(self, reason: Reason | None) -> None:
        if self.is_announced:
            self.is_announced = False
            message = wire.RemoveGeneration(self._number, shorten(reason.text if reason else ""))
            self._introductions.send_to_broker(message)
