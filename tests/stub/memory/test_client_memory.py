"""Memory of an arena on its way to clients."""

from __future__ import annotations

from tests.floor.test_arena import allocate
from zmqtriton_floor.arena import Arena
from zmqtriton_stub.memory.client_memory import ClientMemory

MIB = 1 << 20


def test_a_peer_is_full_until_it_has_released_enough() -> None:
    arena = Arena(7)
    memory = ClientMemory(arena, 4 * MIB)
    numbers = [allocate(arena, MIB).block.block for _ in range(5)]

    for number in numbers[:3]:
        memory.add(3, [number])
        assert not memory.is_full(3)
    memory.add(3, numbers[3:])
    assert memory.is_full(3)
    assert not memory.is_full(4)
    arena.leases.end(numbers[:2])

    assert not memory.is_full(3)
    arena.leases.end(numbers[2:])
    assert not memory.is_full(3)


def test_what_was_released_long_ago_is_forgotten() -> None:
    arena = Arena(7)
    memory = ClientMemory(arena, 100 * MIB)
    kept = allocate(arena, MIB).block.block
    memory.add(3, [kept])

    for _ in range(2000):
        number = allocate(arena, 100_000).block.block
        memory.add(3, [number])
        arena.leases.end([number])

    assert not memory.is_full(3)
    assert len(memory._blocks[3]) < 600
