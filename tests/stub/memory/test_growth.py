"""The verdict on a process's memory, from sizes that the test gives."""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable, Iterator

import pytest

from zmqtriton_floor.wire import MemoryGrowth
from zmqtriton_stub.memory.growth import (
    EARLY,
    EARLY_STEP,
    FIRST_STEP,
    WARM_UP,
    GrowthWatch,
    read_own_bytes,
)

MIB = 1 << 20


def watch(size: Callable[[int], float], executions: int) -> list[MemoryGrowth]:
    """Return what is told during so many executions, of which each leaves so many bytes."""
    now = 0
    growth = GrowthWatch(lambda: int(size(now)))
    verdicts: list[MemoryGrowth] = []
    for now in range(1, executions + 1):
        if now >= growth.due:
            changed = growth.look(now)
            verdicts += [] if changed is None else [changed]
    return verdicts


def test_a_leak_is_told_with_its_sizes() -> None:
    (growth,) = watch(lambda n: (26 + 2 * n) * MIB, 500)

    ended = WARM_UP + 8 * FIRST_STEP
    assert MemoryGrowth(8 * FIRST_STEP, (26 + 2 * WARM_UP) * MIB, (26 + 2 * ended) * MIB) == growth


def test_a_large_leak_is_told_within_the_warm_up() -> None:
    growth, *_ = watch(lambda n: (26 + 20 * n) * MIB, 60)

    assert growth.executions == 8 * EARLY_STEP == (growth.after - growth.before) / MIB / 20
    assert growth.before == (26 + 20 * EARLY) * MIB


@pytest.mark.parametrize(
    ("mib", "executions"),
    [
        pytest.param(lambda n: 26 + 20 * min(n, 60), 1000, id="a large warm-up"),
        pytest.param(lambda n: 100 + min(n, 1000), 20_000, id="a cache that has become full"),
    ],
)
def test_what_grew_and_grows_no_more_is_taken_back(
    mib: Callable[[int], float], executions: int
) -> None:
    first, *others = watch(lambda n: mib(n) * MIB, executions)

    assert first.executions
    assert [MemoryGrowth(0, 0, 0)] == others[-1:]


def test_a_slow_leak_is_told_when_it_has_become_much() -> None:
    assert [] == watch(lambda n: 100 * MIB + 8192 * n, 6_000)

    last = watch(lambda n: 100 * MIB + 8192 * n, 30_000)[-1]

    assert 8192 == (last.after - last.before) / last.executions
    assert last.after - last.before >= 64 * MIB


def _jumps(n: int) -> float:
    return 2000.0 if n > 250 else 100.0


def _noise(n: int) -> float:
    return 300 + random.Random(n).uniform(0, 400)


def _drops(n: int) -> float:
    return 100 + n % 70 * 4


@pytest.mark.parametrize(
    "mib",
    [
        pytest.param(lambda n: 100 + 10 * min(n, 120), id="warms up"),
        pytest.param(lambda n: 100 + 2000 * (1 - 0.99**n), id="approaches a bound"),
        pytest.param(_jumps, id="grows at once"),
        pytest.param(_noise, id="varies"),
        pytest.param(_drops, id="is emptied again and again"),
        pytest.param(lambda n: 4000 + 0.5 * n if n < 600 else 4300, id="grows by a small share"),
        pytest.param(lambda n: 100 + 0.02 * min(n, 3000), id="grows by little"),
    ],
)
def test_what_is_no_leak_is_not_told(mib: Callable[[int], float]) -> None:
    assert [] == watch(lambda n: mib(n) * MIB, 20_000)


def test_looks_become_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    def looks(executions: int) -> Iterator[int]:
        watch = GrowthWatch(lambda: 0)
        while watch.due < executions:
            yield watch.due
            watch.look(watch.due)

    assert len([*looks(10_000)]) < 60
    assert len([*looks(100_000_000)]) < 900


def test_the_memory_of_this_process_is_read() -> None:
    before = read_own_bytes()
    # not from the heap, which may have as much that was freed before
    with mmap.mmap(-1, 32 * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as kept:
        kept.write(b"\1" * len(kept))

        assert read_own_bytes() - before > 24 * MIB
