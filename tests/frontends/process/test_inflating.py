from __future__ import annotations

import asyncio
import gc
import random
import zlib

import pytest

from zmqtriton_frontends.process.inflating import (
    BYTES_PER_S,
    MOST_BYTES,
    InflatingBudgets,
    inflate,
)


class Client:
    pass


def test_who_has_had_much_waits_and_nobody_else_does() -> None:
    now = [1000.0]
    budgets = InflatingBudgets(lambda: now[0])
    greedy, other = Client(), Client()

    budgets.spend(greedy, MOST_BYTES)
    assert budgets.wait_s(greedy) == 0
    budgets.spend(greedy, 4 * BYTES_PER_S)

    assert budgets.wait_s(greedy) == 4
    assert budgets.wait_s(other) == 0
    now[0] += 3
    assert budgets.wait_s(greedy) == 1
    now[0] += 3600
    budgets.spend(greedy, MOST_BYTES + BYTES_PER_S)
    assert budgets.wait_s(greedy) == 1


def test_small_bodies_are_free_and_clients_that_leave_are_forgotten() -> None:
    budgets = InflatingBudgets(lambda: 0.0)
    client = Client()
    for _ in range(10_000):
        budgets.spend(client, 1 << 20)
    assert budgets.wait_s(client) == 0
    budgets.spend(client, 2 * MOST_BYTES)
    assert len(budgets._left) == 1

    del client
    gc.collect()

    assert len(budgets._left) == 0


def test_each_step_has_room_before_it_is_made() -> None:
    bomb, limit, held = zlib.compress(bytes(100 << 20)), 16 << 20, [0]

    def hold(size: int) -> None:
        held[0] += size
        if held[0] > limit:
            raise MemoryError

    with pytest.raises(MemoryError):
        asyncio.run(inflate(bomb, "deflate", 1 << 30, Client(), hold=hold))

    assert held[0] <= limit + (4 << 20)


@pytest.mark.parametrize("size", [0, 1, 256 << 10, (256 << 10) + 1, 10_000_000])
def test_what_comes_out_is_what_was_deflated_and_all_of_it_is_held(size: int) -> None:
    data, held = random.Random(size).randbytes(size), [0]

    def hold(more: int) -> None:
        held[0] += more

    for packed in (zlib.compress(data), zlib.compress(data, 0)):
        held[0] = 0
        assert data == asyncio.run(inflate(packed, "deflate", size, Client(), hold=hold))
        assert size == held[0]
        assert asyncio.run(inflate(packed + b"x", "deflate", size, Client(), hold=hold)) is None
        assert asyncio.run(inflate(packed[:-1], "deflate", size, Client(), hold=hold)) is None
