from __future__ import annotations

import gc

from zmqtriton_frontends.process.inflating import BYTES_PER_S, MOST_BYTES, InflatingBudgets


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
