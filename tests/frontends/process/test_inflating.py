from __future__ import annotations

import asyncio
import gc
import random
import subprocess
import sys
import zlib

import pytest

from tests.support.scenarios import scenario
from tests.support.server import ROOT
from zmqtriton_frontends.process.codecs import (
    BYTES_PER_S,
    MAX_BYTES,
    InflatingBudgets,
    inflate,
)


class Client:
    pass


def test_who_has_had_much_waits_and_nobody_else_does() -> None:
    now = [1000.0]
    budgets = InflatingBudgets(lambda: now[0])
    greedy, other = Client(), Client()

    budgets.spend(greedy, MAX_BYTES)
    assert budgets.wait_s(greedy) == 0
    budgets.spend(greedy, 4 * BYTES_PER_S)

    assert (4, 0) == (budgets.wait_s(greedy), budgets.wait_s(other))
    now[0] += 3
    assert budgets.wait_s(greedy) == 1
    now[0] += 3600
    budgets.spend(greedy, MAX_BYTES + BYTES_PER_S)
    assert budgets.wait_s(greedy) == 1


def test_small_bodies_are_free_and_clients_that_leave_are_forgotten() -> None:
    budgets = InflatingBudgets(lambda: 0.0)
    client = Client()
    for _ in range(10_000):
        budgets.spend(client, 1 << 20)
    assert budgets.wait_s(client) == 0
    budgets.spend(client, 2 * MAX_BYTES)
    # what clients leave would only grow
    assert len(budgets._left) == 1

    del client
    gc.collect()

    # what clients leave would only grow
    assert len(budgets._left) == 0


@pytest.mark.slow
def test_each_step_has_room_before_it_is_made() -> None:
    bomb, limit, held = zlib.compress(bytes(40 << 20)), 16 << 20, [0]

    def hold(size: int) -> None:
        held[0] += size
        if held[0] > limit:
            raise MemoryError

    with pytest.raises(MemoryError):
        asyncio.run(inflate(bomb, "deflate", 1 << 30, Client(), hold=hold))

    assert held[0] <= limit + (4 << 20)


@pytest.mark.parametrize("size", [0, 1, 256 << 10, (256 << 10) + 1, 5_000_000])
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


@pytest.mark.parametrize("size", [300_000, 5_000_000, 13_000_000])
@scenario(asyncio.run)
async def test_what_comes_in_steps_is_whole(size: int) -> None:
    data, held = random.Random(1).randbytes(1000) * (size // 1000), [0]

    def hold(more: int) -> None:
        held[0] += more

    packed = zlib.compress(data)
    assert data == await inflate(packed, "deflate", 1 << 30, Client(), hold=hold)
    assert await inflate(packed[:-5], "deflate", 1 << 30, Client(), hold=hold) is None
    too_large = await inflate(packed, "deflate", size // 2, Client(), hold=hold)
    assert too_large is not None
    assert len(too_large) > size // 2
    assert held[0] >= len(data)


#: Inflates eight messages side by side, and prints how many MiB that took at most, and they have.
_SIDE_BY_SIDE = """
import asyncio, resource, zlib
from zmqtriton_frontends.process.allocator import keep_freed_memory
from zmqtriton_frontends.process.codecs import inflate

async def run():
    async def one():
        return await inflate(packed, "deflate", 1 << 30, object_of(), hold=lambda size: None)
    whole = await asyncio.gather(*(one() for _ in range(8)))
    return sum(map(len, whole))

class object_of:
    pass

keep_freed_memory()
packed = zlib.compress(bytes(28 << 20))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
size = asyncio.run(run())
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) >> 10, size >> 20)
"""


@pytest.mark.slow
def test_messages_that_are_inflated_side_by_side_leave_few_holes() -> None:
    command = [sys.executable, "-c", _SIDE_BY_SIDE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    took, size = map(int, done.stdout.split())
    assert 8 * 28 == size
    # of a step in each thread there are two for a moment; holes would be 100 MiB more
    assert took < size + 28 + 64
