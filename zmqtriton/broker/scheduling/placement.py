"""Chooses the instance of a model that gets the next batch."""

from __future__ import annotations

from zmqtriton.broker.scheduling.ahead import SendingAhead
from zmqtriton.broker.scheduling.instances import Instance, InstanceState


class Placement:
    """The instances of one model that can take a batch."""

    def __init__(
        self,
        instances: dict[int, Instance],
        *,
        ahead: SendingAhead,
        has_concurrent_batches: bool,
        has_sequences: bool,
    ) -> None:
        self.instances = instances
        self.ahead = ahead
        #: An instance may be given another batch while it executes one.
        self._has_concurrent_batches = has_concurrent_batches
        #: The sequence batcher chooses the instances.
        self._has_sequences = has_sequences
        #: Instances begin nothing before the rate limiter lets them.
        self.is_limited = False
        #: The instance that became idle last has the warmest caches and goes first.
        self._idle: list[Instance] = []
        #: Counters beside the statistics, by name.
        self.counts: dict[str, int] = {}

    def limit(self) -> None:
        """Let the rate limiter decide when an instance begins."""
        self.is_limited = True
        self._idle.clear()

    def remove(self, instance: Instance) -> None:
        """Forget an instance that has ended, which may have been idle below others all the time."""
        self.instances.pop(instance.serial, None)
        self._idle = [one for one in self._idle if one is not instance]

    def become_idle(self, instance: Instance) -> None:
        if instance.membership is None and not self._has_sequences:
            self._idle.append(instance)

    def finish_batch(self, instance: Instance, execution_ns: int) -> None:
        """Take note that an instance has executed a batch, and in what time."""
        ahead = self.ahead
        ahead.mean_ns += (execution_ns - ahead.mean_ns) // 8 if ahead.mean_ns else execution_ns
        if (
            instance.state is InstanceState.IDLE
            and instance.membership is None
            and not self._has_sequences
        ):
            self._idle.append(instance)

    def take_instance(self, waiting: int, now_ns: int) -> Instance | None:
        """Take the instance for the next batch; give_back() it if there is no batch for it.

        `waiting` is the number of requests in the queue.
        """
        idle = self._idle
        while idle:
            instance = idle.pop()
            if instance.state is InstanceState.IDLE:
                return instance
        return self._instance_with_free_slot() or self.ahead.target(self.instances, waiting, now_ns)

    def give_back(self, instance: Instance) -> None:
        """Take back what take_instance() has returned: there is no batch for it yet."""
        if instance.state is InstanceState.IDLE:
            self.become_idle(instance)

    def _instance_with_free_slot(self) -> Instance | None:
        """The instance that can begin most batches beside those that it executes."""
        if not (self._has_concurrent_batches or self.is_limited):
            return None
        best = max(self.instances.values(), key=lambda one: one.startable_batches, default=None)
        return best if best is not None and best.startable_batches > 0 else None
