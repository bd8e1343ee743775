"""The growth of this process's own memory from execution to execution, which a leak makes steady.

Measured after numbers of executions, not after times. The memory of a model's first executions is
left out, unless it is very much; then measurements are farther and farther apart, so that they cost
nothing and also find a slow leak. Memory that is shared with other processes, such as tensors, does
not count.
"""

from __future__ import annotations

import os
from typing import Callable, List, Optional, Tuple

from zmqtriton_floor.wire import MemoryGrowth

#: The executions before the first look, and between the first looks.
WARM_UP, FIRST_STEP = 100, 32
#: The same during the warm-up, where only much growth counts.
EARLY, EARLY_STEP = 8, 4
#: Number of executions between two looks at most. From there on the oldest looks are dropped, in
#: place of every other one.
_LONGEST_STEP = 1 << 17
#: Number of intervals between looks that are judged together. Memory may fail to grow in one.
_INTERVALS = 8
#: Less is no trouble: in all, and as a share of what there was.
_LEAST_BYTES, _LEAST_SHARE = 64 << 20, 0.25
#: The same of growth during the warm-up.
_MUCH_BYTES, _MUCH_SHARE = 512 << 20, 1.0
#: The second half of the intervals has at least this share of the growth of the first.
_LASTING = 0.5
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def read_own_bytes() -> int:
    """Return the memory of this process, without memory shared with others."""
    with open("/proc/self/statm", "rb", buffering=0) as file:
        _, resident, shared, *_ = file.read().split()
    return (int(resident) - int(shared)) * _PAGE_BYTES


class GrowthWatch:
    def __init__(self, read: Callable[[], int] = read_own_bytes) -> None:
        self._read = read
        #: The number of executions after which to look next.
        self.due = EARLY
        self._step = EARLY_STEP
        #: Executions and bytes at each look.
        self._looks: List[Tuple[int, int]] = []
        self._has_grown = False

    def look(self, executions: int) -> Optional[MemoryGrowth]:
        """Measure after this number of executions; return the verdict if it has changed."""
        looks = self._looks
        if self._is_early and executions >= WARM_UP:
            looks.clear()
            self._step = FIRST_STEP
        looks.append((executions, self._read()))
        changed = self._judge() if len(looks) > _INTERVALS else None
        if self._is_early:
            del looks[:-_INTERVALS]
            self.due = min(WARM_UP, executions + self._step)
            return changed
        if len(looks) > _INTERVALS:
            # half of them stay: every other one, or the newest
            if self._step < _LONGEST_STEP:
                self._step *= 2
                del looks[1::2]
            else:
                del looks[: _INTERVALS // 2]
        self.due = executions + self._step
        return changed

    @property
    def _is_early(self) -> bool:
        return self._step < FIRST_STEP

    def _judge(self) -> Optional[MemoryGrowth]:
        (begun, before), (ended, after) = self._looks[0], self._looks[-1]
        least = (_MUCH_BYTES, _MUCH_SHARE) if self._is_early else (_LEAST_BYTES, _LEAST_SHARE)
        if _is_steady([each for _, each in self._looks], *least):
            self._has_grown = True
            return MemoryGrowth(ended - begun, before, after)
        if not self._has_grown:
            return None
        self._has_grown = False
        return MemoryGrowth(0, 0, 0)


def _is_steady(sizes: List[int], least_bytes: int, least_share: float) -> bool:
    """Return True if memory has grown by much, and by similar amounts in nearly all intervals."""
    total = sizes[-1] - sizes[0]
    if total < max(least_bytes, least_share * sizes[0]):
        return False
    grown = [after - before for before, after in zip(sizes, sizes[1:])]
    middle = len(grown) // 2
    first, second = sum(grown[:middle]), sum(grown[middle:])
    has_paused = sum(each <= 0 for each in grown) > 1
    return not has_paused and max(grown) <= total / 2 and second >= _LASTING * first
