"""The entries of the response cache: what is found, what must go, and what is left of it."""

from __future__ import annotations

from zmqtriton.broker.memory.response_cache import CacheEntry, CacheKey, ResponseCache
from zmqtriton_floor.wire import Block


def key(number: int, generation: int = 1, asker: int = 0) -> CacheKey:
    return generation, 0, asker, number.to_bytes(4, "big")


def entry(at: CacheKey, body: int = 1_000, shared: int = 0, owner: int = 7) -> CacheEntry:
    blocks = [Block(owner, 1, at[3][-1])] if shared else []
    return CacheEntry(at, b"x" * body, blocks, shared)


def test_what_was_not_asked_for_the_longest_goes_first() -> None:
    cache = ResponseCache(max_bytes=3 * entry(key(0)).size, max_shared=0)
    for number in (1, 2, 3):
        cache.put(entry(key(number)))
    cache.get(key(1))

    gone = cache.put(entry(key(4)))

    assert [key(2)] == [one.key for one in gone]
    assert [True, False, True, True] == [cache.get(key(n)) is not None for n in (1, 2, 3, 4)]


def test_thousands_of_entries_never_take_more_than_the_bound() -> None:
    cache = ResponseCache(max_bytes=100_000, max_shared=40_960)

    for number in range(5_000):
        new = entry(key(number), number % 3_000, 4_096 * (number % 3))
        assert cache.fits(new)
        cache.put(new)
        assert cache.size <= 100_000

    assert 5_000 == len(cache) + cache.evictions
    cache.forget_generation(1)
    assert (0, 0) == (cache.size, len(cache))
    assert not cache._by_generation
    assert not cache._by_owner


def test_an_entry_that_is_larger_than_the_cache_is_not_taken() -> None:
    cache = ResponseCache(max_bytes=10_000, max_shared=4_096)

    fitting = [cache.fits(entry(key(1), body, shared)) for body, shared in ((9_000, 0), (9_900, 0))]
    too_shared = cache.fits(entry(key(1), 100, 8_192))

    assert [True, False] == fitting
    assert not too_shared


def test_shared_memory_has_a_bound_of_its_own_that_costs_small_answers_nothing() -> None:
    cache = ResponseCache(max_bytes=1_000_000, max_shared=8_192)
    cache.put(entry(key(1)))
    for number in (2, 3):
        cache.put(entry(key(number), 100, 4_096))

    gone = cache.put(entry(key(4), 100, 4_096))

    assert [key(2)] == [one.key for one in gone]


def test_the_first_of_two_equal_answers_stays() -> None:
    cache = ResponseCache(max_bytes=10_000, max_shared=0)
    cache.put(entry(key(1)))

    assert not cache.fits(entry(key(1)))


def test_what_lay_in_the_memory_of_a_dead_process_is_gone() -> None:
    cache = ResponseCache(max_bytes=1_000_000, max_shared=1_000_000)
    cache.put(entry(key(1), 100, 4_096, owner=7))
    cache.put(entry(key(2), 100, 4_096, owner=8))
    cache.put(entry(key(3)))

    gone = cache.forget_owner(7)

    assert [key(1)] == [one.key for one in gone]
    assert 2 == len(cache)
    assert [] == cache.forget_owner(7)


def test_generations_have_entries_of_their_own() -> None:
    cache = ResponseCache(max_bytes=1_000_000, max_shared=0)
    cache.put(entry(key(1, generation=1)))
    cache.put(entry(key(1, generation=2)))

    cache.forget_generation(1)

    assert [False, True] == [cache.get(key(1, generation=g)) is not None for g in (1, 2)]
