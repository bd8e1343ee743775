"""Chooses the instance of a model that gets the next batch.

An instance that still executes may get its next batch ahead, and begins it without a way to the
broker and back. Only if a model has one instance: with several, a batch would wait at one while
another is idle. Only if executions are short: no other request can overtake a batch that was sent
ahead, and no queue policy ends its wait. Requests of a dynamic batcher stay in the queue, where
their batch grows, until the execution is about to end.
"""

from __future__ import annotations

from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.scheduling.instances import IDLE, Instance

#: Maximum work that is sent ahead, if executions are shorter than this, and maximum number of
#: batches.
_AHEAD_NS = 2_000_000
_MOST_BATCHES = 16
#: Time before the end of an execution when a dynamic batcher's next batch is sent: as long as the
#: results take to the broker, and a batch takes to the stub.
_LEAD_NS = 250_000


class SendingAhead:
    """The batches that one model's instance gets while it executes another."""

    def __init__(self, *, is_batching: bool, has_queue_rules: bool) -> None:
        self._is_batching = is_batching
        #: True if time limits or priorities decide about each request until it is executed.
        self._has_queue_rules = has_queue_rules
        #: The average time of an execution; 0 before the first.
        self.mean_ns = 0
        #: Time when the execution is about to end that keeps target() from sending ahead; 0: never.
        self.due_ns = 0

    def target(self, instances: dict[int, Instance], waiting: int, now_ns: int) -> Instance | None:
        """Return the instance that can now take a batch ahead, or None."""
        self.due_ns = 0
        if len(instances) != 1 or not 0 < self.mean_ns <= _AHEAD_NS or self._has_queue_rules:
            return None
        (instance,) = instances.values()
        if not self._is_batching:
            count = min(_MOST_BATCHES, 1 + _AHEAD_NS // self.mean_ns)
            return instance if instance.may_take_ahead(count) else None
        if not instance.may_take_ahead(2):
            return None
        (executing,) = instance.batches.values()
        if 2 * waiting < len(executing.requests):
            return None  # batches of very unequal sizes would follow each other
        begin_ns = instance.executing_since_ns + self.mean_ns - _LEAD_NS
        if now_ns < begin_ns:
            self.due_ns = begin_ns
            return None
        return instance


class Placement:
    """The instances of one model that can take a batch."""

    def __init__(
        self,
        instances: dict[int, Instance],
        *,
        ahead: SendingAhead,
        has_concurrent_batches: bool,
        notes_idle: bool,
    ) -> None:
        self.instances = instances
        self.ahead = ahead
        #: True if an instance may be given another batch while it executes one, or none though it
        #: is idle.
        self._has_concurrent_batches = has_concurrent_batches
        #: True if idle instances are listed: not where the sequence batcher or an add-on chooses,
        #: nor where streams decide whether an idle one has room.
        self._notes_idle = notes_idle
        #: True if instances begin nothing before the rate limiter lets them.
        self.is_limited = False
        #: Idle instances. The one that became idle last has the warmest caches and goes first.
        self._idle: list[Instance] = []
        #: Counters besides the statistics, by name.
        self.counts: dict[str, int] = {}
        #: The batch for the instance that was taken last; None: the first one of the queue. A
        #: placement by an add-on (`broker.placement`) chooses both.
        self.share: list[InflightRequest] | None = None

    def limit(self) -> None:
        """Let the rate limiter decide when an instance begins."""
        self.is_limited = True
        self._idle.clear()

    def remove(self, instance: Instance) -> None:
        """Forget an ended instance, which may still be in the list of idle ones."""
        self.instances.pop(instance.serial, None)
        self._idle = [one for one in self._idle if one is not instance]

    def become_idle(self, instance: Instance) -> None:
        if instance.membership is None and self._notes_idle:
            self._idle.append(instance)

    def finish_batch(self, instance: Instance, execution_ns: int) -> None:
        """Update the mean execution time after a batch, and list the instance if it is idle now."""
        ahead = self.ahead
        ahead.mean_ns += (execution_ns - ahead.mean_ns) // 8 if ahead.mean_ns else execution_ns
        if instance.state is IDLE and instance.membership is None and self._notes_idle:
            self._idle.append(instance)

    def take_instance(self, waiting: int, now_ns: int) -> Instance | None:
        """Remove and return the instance for the next batch; give_back() it without a batch.

        `waiting` is the number of requests in the queue.
        """
        idle = self._idle
        while idle:
            instance = idle.pop()
            if instance.state is IDLE:
                return instance
        return self._instance_with_free_slot() or self.ahead.target(self.instances, waiting, now_ns)

    def give_back(self, instance: Instance) -> None:
        """Take back what take_instance() has returned: there is no batch for it yet."""
        if instance.state is IDLE:
            self.become_idle(instance)

    def _instance_with_free_slot(self) -> Instance | None:
        """Return the instance that can begin the most batches now; None if none can begin any.

        Among equal ones, the one with the fewest requests.
        """
        if not (self._has_concurrent_batches or self.is_limited):
            return None
        best = max(
            self.instances.values(),
            key=lambda one: (one.startable_batches, -len(one.open_requests)),
            default=None,
        )
        return best if best is not None and best.startable_batches > 0 else None
