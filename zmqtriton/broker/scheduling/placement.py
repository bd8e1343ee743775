"""Chooses the instance of a model that gets the next batch."""

from __future__ import annotations

from zmqtriton.broker.scheduling.instances import Instance, InstanceState

#: If executions are shorter than this, more are sent ahead, up to this much work in all.
_PREFETCH_NS = 2_000_000
_MAX_PREFETCHED = 16


class Placement:
    """The instances of one model that can take a batch."""

    def __init__(
        self,
        instances: dict[int, Instance],
        *,
        has_dynamic_batching: bool,
        has_concurrent_batches: bool,
        has_sequences: bool,
    ) -> None:
        self._instances = instances
        self._has_dynamic_batching = has_dynamic_batching
        #: An instance may be given another batch while it executes one.
        self._has_concurrent_batches = has_concurrent_batches
        #: The sequence batcher chooses the instances.
        self._has_sequences = has_sequences
        #: Instances begin nothing before the rate limiter lets them.
        self.is_limited = False
        #: The instance that became idle last has the warmest caches and goes first.
        self._idle: list[Instance] = []
        #: The average time of an execution; 0 before the first.
        self._mean_ns = 0

    def limit(self) -> None:
        """Let the rate limiter decide when an instance begins."""
        self.is_limited = True
        self._idle.clear()

    def become_idle(self, instance: Instance) -> None:
        if instance.membership is None and not self._has_sequences:
            self._idle.append(instance)

    def finish_batch(self, instance: Instance, execution_ns: int) -> None:
        """Take note that an instance has executed a batch, and in what time."""
        self._mean_ns += (execution_ns - self._mean_ns) // 8 if self._mean_ns else execution_ns
        is_idle = instance.state is InstanceState.IDLE
        if is_idle and instance.membership is None and not self._has_sequences:
            self._idle.append(instance)

    @property
    def may_have_room(self) -> bool:
        """True if an idle or a concurrent instance could begin a batch."""
        return bool(self._idle) or self._instance_with_free_slot() is not None

    def take_instance(self) -> Instance | None:
        """Take the instance for the next batch; give_back() it if there is no batch for it."""
        idle = self._idle
        while idle:
            instance = idle.pop()
            if instance.state is InstanceState.IDLE:
                return instance
        return self._instance_with_free_slot() or self._prefetch_target()

    def give_back(self, instance: Instance) -> None:
        """Take back what take_instance() has returned: there is no batch for it yet."""
        if instance.state is InstanceState.IDLE:
            self.become_idle(instance)

    def _prefetch_target(self) -> Instance | None:
        """The instance to which a batch may be sent while it executes another one.

        Only where executions are short, so that the batch waits there no longer than a blink, and
        where no other instance could become idle first. A batch that a dynamic batcher delays to
        let it grow is better off in the queue.
        """
        if (
            len(self._instances) != 1
            or not 0 < self._mean_ns <= _PREFETCH_NS
            or self._has_dynamic_batching
        ):
            return None
        (instance,) = self._instances.values()
        count = min(_MAX_PREFETCHED, 1 + _PREFETCH_NS // self._mean_ns)
        return instance if instance.may_take_ahead(count) else None

    def _instance_with_free_slot(self) -> Instance | None:
        """The instance that can begin most batches beside those that it executes."""
        if not (self._has_concurrent_batches or self.is_limited):
            return None
        best = max(self._instances.values(), key=lambda one: one.startable_batches, default=None)
        return best if best is not None and best.startable_batches > 0 else None
