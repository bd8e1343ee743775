"""The number of instances that the server may have: each costs descriptors. Does no I/O."""

from __future__ import annotations

from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.reasons import Kind


class InstanceLimit:
    def __init__(self, maximum: float) -> None:
        self.maximum = maximum
        self._counts: dict[int, int] = {}
        self._total = 0
        #: The generations that end.
        self._leaving: set[int] = set()

    def claim(self, generation: int, instances: int) -> None:
        """Count the instances of a generation. Raises Unavailable if there would be too many."""
        others = self._total - self._counts.get(generation, 0)
        if others + instances > self.maximum:
            text = (
                f"the limit of open files allows {self.maximum:g} instances; there are {others}, "
                f"and the load needs {instances} more (see ulimit -n, LimitNOFILE)"
            )
            raise Unavailable(text).because(Kind.TOO_FEW_DESCRIPTORS, limit=int(self.maximum))
        self._counts[generation], self._total = instances, others + instances

    def is_room_coming(self, instances: int) -> bool:
        """True if so many do not fit beside all others, but beside those that stay."""
        staying = self._total - sum(self._counts.get(number, 0) for number in self._leaving)
        return staying + instances <= self.maximum < self._total + instances

    def leave(self, generation: int) -> None:
        """Take note that a generation ends; it counts until it has no process any more."""
        self._leaving.add(generation)

    def release(self, generation: int) -> None:
        """Forget a generation that has no process any more."""
        self._total -= self._counts.pop(generation, 0)
        self._leaving.discard(generation)
