"""The rate of a model whose parameter `max_executions_per_second` limits its executions.

Knows no clock but the times that it gets.
"""

from __future__ import annotations

from typing import TypeVar

from zmqtriton_floor.errors import ZmqTritonError

Refusal = TypeVar("Refusal", bound=ZmqTritonError)

#: The model parameter; absent or 0: no limit.
MAX_EXECUTIONS = "max_executions_per_second"
#: Time that executions can catch up with: they may come closer together if as many were left out
#: within it.
_CATCH_UP_NS = 100_000_000


class SharedRate:
    """Computes when the next execution of a model may begin.

    One for all versions of the model, which outlives a reload.
    """

    def __init__(self, per_second: float) -> None:
        self.per_second = per_second
        #: Time when the next execution would begin if all kept the same distance.
        self._next_ns = 0
        #: The executions of the current second of the clock, and those of the one before.
        self._second = self._count = self._count_before = 0

    @property
    def free_ns(self) -> int:
        return self._next_ns - max(0, _CATCH_UP_NS - self._interval_ns)

    def begin(self, now_ns: int) -> None:
        """Count an execution that begins now."""
        self._next_ns = max(self._next_ns, now_ns) + self._interval_ns
        self._turn_second(now_ns)
        self._count += 1

    def executions_of_last_second(self, now_ns: int) -> int:
        self._turn_second(now_ns)
        return self._count_before

    def _turn_second(self, now_ns: int) -> None:
        second = now_ns // 1_000_000_000
        if second != self._second:
            self._count_before = self._count if second == self._second + 1 else 0
            self._second, self._count = second, 0

    @property
    def _interval_ns(self) -> int:
        return int(1e9 / self.per_second)


class ExecutionRate:
    """The rate of one generation, shared with the other generations of its model."""

    def __init__(self, shared: SharedRate) -> None:
        self.shared = shared
        #: True while the next batch of the generation waits for the rate.
        self.is_waiting = False
        #: Number of its requests that were refused while its queue waited for the rate.
        self.refused = 0

    def may_begin(self, now_ns: int) -> bool:
        return now_ns >= self.shared.free_ns

    def report(self, now_ns: int) -> dict[str, float]:
        return {
            "per_second": self.shared.per_second,
            "last_second": self.shared.executions_of_last_second(now_ns),
            "refused": self.refused,
        }

    def refusal(self, error: Refusal) -> Refusal:
        """Return the error of a request that is refused while the queue waits for the rate."""
        self.refused += 1
        limit = f"{self.shared.per_second:g} executions per second ({MAX_EXECUTIONS})"
        return type(error)(f"{error.text}: the model may begin {limit}")
