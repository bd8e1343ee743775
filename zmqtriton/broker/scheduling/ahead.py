"""Says when an instance that still executes may be sent its next batch.

The instance then begins it without a way to the broker and back. Only the one instance of a model
is sent anything ahead: with several, a batch would wait at one while another is idle. Only short
executions are: what was sent ahead is overtaken by nothing and no queue policy ends it.

Requests of a dynamic batcher are better off in the queue, where their batch grows, until the
execution is about to end.
"""

from __future__ import annotations

from zmqtriton.broker.scheduling.instances import Instance

#: If executions are shorter than this, more are sent ahead, up to this much work in all.
_AHEAD_NS = 2_000_000
_MOST_BATCHES = 16
#: How long before the end of an execution the next batch of a dynamic batcher is sent: as long as
#: the results take to the broker, and a batch takes to the stub.
_LEAD_NS = 250_000


class SendingAhead:
    """The batches that one model's instance gets while it executes another."""

    def __init__(self, *, is_batching: bool, has_queue_rules: bool) -> None:
        self._is_batching = is_batching
        #: Time limits or priorities decide about each request until it is executed.
        self._has_queue_rules = has_queue_rules
        #: The average time of an execution; 0 before the first.
        self.mean_ns = 0
        #: When the execution is about to end that target() has found to be in the way; 0 is never.
        self.due_ns = 0

    def target(self, instances: dict[int, Instance], waiting: int, now_ns: int) -> Instance | None:
        """Return the instance that may be sent a batch ahead, if one may."""
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
