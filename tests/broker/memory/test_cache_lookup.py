"""The cache of responses, and requests that it answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.ensemble_world import EnsembleHarness, ensemble, model, step, tensor
from tests.broker.world import BrokerHarness, F, request
from zmqtriton.broker.memory.response_cache import CacheEntry, CacheKey, ResponseCache
from zmqtriton_floor import wire
from zmqtriton_floor.mappings import REGIONS_FROM
from zmqtriton_floor.settings.broker import BrokerSettings, Cache
from zmqtriton_floor.wire import Block, Reference, ResponseBody, Tensor

# ------------------------------------------------------------------------ cache lookup
# Requests that are answered as an equal one was, through a core with imagined peers.


KEY = b"k" * 32


FRONTEND, OTHER, STUB, MODEL = 10, 11, 20, 30


CONFIG = {"name": "m", "response_cache": {"enable": True}}


SMALL = wire.encode_body(ResponseBody({}, [Tensor("O", 8, [1], b"abcd")]))


class CachingWorld(BrokerHarness):
    def __init__(self, max_bytes: int = 1_000_000, **config: Any) -> None:
        super().__init__()
        settings = BrokerSettings(cache=Cache("00", max_bytes, max_bytes))
        self.core.configure(1, settings, lambda: self.now)
        self.add_generation(config={**CONFIG, **config})
        self.add_frontend(FRONTEND)
        self.add_frontend(OTHER)
        self.add_stub(STUB)

    def ask(self, peer: int, own_id: int, key: bytes = KEY, **fields: Any) -> None:
        self.infer(peer, request(own_id, cache_key=key, **fields))

    def keep(
        self,
        own_id: int = 1,
        key: bytes = KEY,
        answer: tuple[bytes, list[Block]] = (SMALL, []),
    ) -> None:
        """Have a request executed, and its answer kept if it may be."""
        self.ask(FRONTEND, own_id, key)
        self.finish_batch(STUB, answer=answer)

    def is_executing(self) -> bool:
        return bool(self.batched_requests.get(STUB))

    def counted(self) -> dict[str, int]:
        [stats] = self.statistics()["model_stats"]
        kinds = stats["inference_stats"]
        names = ("success", "queue", "compute_infer", "cache_hit", "cache_miss")
        return {"inferences": stats["inference_count"]} | {n: kinds[n]["count"] for n in names}


def large(owner: int = STUB, block: int = 5) -> tuple[bytes, list[Block]]:
    data = Reference(owner, 1, block, 0, 100_000)
    body = wire.encode_body(ResponseBody({}, [Tensor("O", 8, [100_000], data)]))
    return body, [Block(owner, 1, block)]


@pytest.fixture
def world() -> CachingWorld:
    return CachingWorld()


def test_an_equal_request_is_answered_at_once_and_not_executed(world: CachingWorld) -> None:
    world.keep()

    world.ask(OTHER, 1)

    assert not world.is_executing()
    assert [SMALL] == world.reply_bodies[OTHER, 1]
    assert [(0, wire.FINAL)] == [(r.code, r.flags) for r in world.replies[OTHER, 1]]
    counted = {"inferences": 1, "success": 2, "queue": 2, "compute_infer": 1}
    assert counted | {"cache_hit": 1, "cache_miss": 1} == world.counted()
    cache = world.core.cache_lookup.report()["cache"]
    assert (1, 1, 1) == (cache["entries"], cache["hits"], cache["misses"])
    assert 0 == world.core.limits.unanswered


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        pytest.param(b"o" * 32, {}, id="asks for something else"),
        pytest.param(b"", {}, id="has no key"),
        pytest.param(KEY, {"flags": wire.RESENT}, id="may have been executed before"),
        pytest.param(KEY, {"correlation": 7}, id="is of a sequence"),
        pytest.param(KEY, {"flags": wire.SEQUENCE_START}, id="begins one"),
        pytest.param(KEY, {"flags": wire.ACCEPTS_GPU}, id="may be answered on a GPU"),
    ],
)
def test_any_other_request_is_executed(
    world: CachingWorld, key: bytes, fields: dict[str, Any]
) -> None:
    world.keep()

    world.ask(FRONTEND, 2, key, **fields)

    assert world.is_executing()


def test_two_that_are_executed_at_once_leave_one_answer(world: CachingWorld) -> None:
    world.ask(FRONTEND, 1)
    world.ask(OTHER, 1)
    world.finish_batch(STUB, answer=(SMALL, []))
    world.finish_batch(STUB, answer=(wire.encode_body(ResponseBody({}, [])), []))

    world.ask(FRONTEND, 2)

    assert [SMALL] == world.reply_bodies[FRONTEND, 2]


def test_what_had_to_go_is_given_back_to_its_owner() -> None:
    world = CachingWorld(max_bytes=150_000)
    for number in (1, 2):
        world.keep(number, bytes([number]) * 32, large(block=number))

    assert [Block(STUB, 1, 1)] == world.released_blocks[STUB]


def test_memory_of_a_model_that_waits_for_an_answer_is_not_kept(world: CachingWorld) -> None:
    world.add_generation(2, config={"name": "asker"})
    world.add_stub(MODEL, generation=2)
    world.ask(MODEL, 1)

    world.finish_batch(STUB, answer=large(owner=MODEL))  # its own input, passed on
    world.ask(MODEL, 2)

    assert world.is_executing()


def test_a_dead_stub_takes_what_lay_in_its_memory_with_it(world: CachingWorld) -> None:
    for number, answer in ((1, large()), (2, (SMALL, []))):
        world.keep(number, bytes([number]) * 32, answer)
    world.kill_peer(STUB)

    for number in (1, 2):
        world.ask(OTHER, number, bytes([number]) * 32)

    assert (OTHER, 1) not in world.replies
    assert [SMALL] == world.reply_bodies[OTHER, 2]


def test_what_was_loaded_anew_has_answers_of_its_own(world: CachingWorld) -> None:
    world.ask(FRONTEND, 1)
    world.ask(FRONTEND, 2, b"l" * 32)
    world.finish_batch(STUB, answer=(SMALL, []))
    world.add_generation(generation=2, config=CONFIG)
    world.core.retire(wire.Retire(1))
    world.finish_batch(STUB, answer=(SMALL, []))

    assert world.core.cache_lookup.cache is not None
    assert 0 == len(world.core.cache_lookup.cache)
    world.add_stub(STUB + 1, generation=2)
    world.ask(FRONTEND, 3, generation=2)
    assert world.batched_requests[STUB + 1]


def test_an_answer_that_was_kept_waits_for_those_before_it_where_order_is() -> None:
    world = CachingWorld(dynamic_batching={"preserve_ordering": True}, max_batch_size=1)
    world.keep()
    world.ask(FRONTEND, 2, b"s" * 32)

    world.ask(FRONTEND, 3)
    early = (FRONTEND, 3) in world.replies
    world.finish_batch(STUB, answer=(SMALL, []))

    assert not early
    assert [SMALL] == world.reply_bodies[FRONTEND, 3]


@pytest.mark.parametrize(
    ("cached", "has_cache", "is_hashed"),
    [(True, True, True), (False, True, False), (True, False, False)],
)
def test_only_what_a_model_with_a_cache_reads_is_hashed(
    cached: bool, has_cache: bool, is_hashed: bool
) -> None:
    steps = [step("first", {"I": "x"}, {"O": "m"}), step("second", {"I": "m"}, {"O": "y"})]
    second = model("second", response_cache={"enable": cached})
    world = EnsembleHarness(ensemble(steps), model("first"), second)
    if has_cache:
        world.core.configure(1, _SETTINGS, lambda: world.now)

    world.infer_ensemble(1)

    [work] = world.batched_requests[world.serials["first"]]
    assert is_hashed == bool(work.flags & wire.WANT_DIGESTS)
    world.respond("first", tensor("O", b"m"))
    [work] = world.batched_requests[world.serials["second"]]
    assert not work.flags & wire.WANT_DIGESTS


_SETTINGS = BrokerSettings(cache=Cache("00", 9_999, 9_999))


def _ask_through_an_ensemble(asker: int) -> EnsembleHarness:
    """`a` or a client has asked the ensemble, whose member has a cache, with a large tensor."""
    any_size = [-1]
    cached = model("m", dims=any_size, response_cache={"enable": True})
    whole = ensemble([step("m", {"I": "x"}, {"O": "y"})], dims=any_size)
    world = EnsembleHarness(whole, cached, model("a"), model("b"))
    world.core.configure(1, _SETTINGS, lambda: world.now)
    _ask_large(world, asker)
    world.respond("m", tensor("O", b"answer"))
    return world


def _ask_large(world: EnsembleHarness, asker: int, data: Any = None) -> None:
    claimed = Reference(asker, 1, 5, 0, 100_000, b"d" * 32)
    size = claimed.size if data is None else len(data)
    input_tensor = tensor("x", claimed if data is None else data, [size // 4])
    body = wire.RequestBody("", {}, [], [input_tensor])
    row = request(world.numbers["e"], world.numbers["e"])._replace(id=len(world.replies) + 1)
    world.infer(asker, row, body=wire.encode_body(body))


@pytest.mark.row("E45")
@pytest.mark.parametrize("asker", ["a", "client"])
def test_large_tensors_that_a_model_names_are_known_to_that_model_alone(asker: str) -> None:
    world = _ask_through_an_ensemble(1)
    serials = {**world.serials, "client": 1}
    world = _ask_through_an_ensemble(serials[asker])

    _ask_large(world, serials[asker])
    assert set() == world.busy_models(), "it is known"

    for other in {"a", "b", "client"} - {asker}:
        _ask_large(world, serials[other])
        assert {"m"} == world.busy_models()
        world.respond("m", tensor("O", b"other"))


def test_what_a_step_writes_to_a_clients_memory_is_written_each_time() -> None:
    cached = model("m", response_cache={"enable": True})
    world = EnsembleHarness(ensemble([step("m", {"I": "x"}, {"O": "y"})]), cached)
    world.core.configure(1, _SETTINGS, lambda: world.now)
    place = wire.Place("y", F, REGIONS_FROM + 1, 64, 16)

    for own_id in (1, 2):
        world.infer_ensemble(own_id, wire.RequestBody("", {}, [], [tensor("x")], [place]))
        assert {"m"} == world.busy_models()
        world.respond("m", tensor("O")._replace(data=None))


@pytest.mark.parametrize(("owner", "is_kept"), [(FRONTEND, True), (OTHER, False)])
def test_an_answer_in_the_memory_of_who_asked_is_kept_and_of_no_other_client(
    world: CachingWorld, owner: int, is_kept: bool
) -> None:
    input_tensor = Tensor("I", 8, [100_000], Reference(owner, 1, 5, 0, 100_000))
    body = wire.encode_body(wire.RequestBody("", {}, [], [input_tensor]))
    world.infer(FRONTEND, request(1, cache_key=KEY, flags=wire.HAS_REFERENCES), body=body)
    world.finish_batch(STUB, answer=large(owner))
    assert [0] == [reply.code for reply in world.replies[FRONTEND, 1]]

    world.ask(OTHER, 2)

    assert is_kept != world.is_executing()


# ---------------------------------------------------------------------- response cache
# The entries of the response cache: what is found, what must go, and what is left of it.


def key(number: int, generation: int = 1, asker: int = 0) -> CacheKey:
    return generation, 0, asker, number.to_bytes(4, "big")


def entry(at: CacheKey, body: int = 1_000, shared: int = 0, owner: int = 7) -> CacheEntry:
    return CacheEntry(at, b"x" * body, [Block(owner, 1, at[3][-1])] if shared else [], shared)


def test_what_was_not_asked_for_the_longest_goes_first() -> None:
    cache = ResponseCache(max_bytes=3 * entry(key(0)).size, max_shared=0)
    for number in (1, 2, 3):
        cache.put(entry(key(number)))
    cache.get(key(1))

    assert [key(2)] == [one.key for one in cache.put(entry(key(4)))]
    assert [True, False, True, True] == [cache.get(key(n)) is not None for n in (1, 2, 3, 4)]


def test_thousands_of_entries_never_take_more_than_the_bound() -> None:
    cache = ResponseCache(max_bytes=100_000, max_shared=40_960)

    for number in range(5_000):
        new = entry(key(number), number % 3_000, 4_096 * (number % 3))
        assert cache.fits(new)
        cache.put(new)
        assert cache.size <= 100_000

    assert 5_000 == len(cache) + cache.evictions
    cache.drop_all(cache.by_generation[1])
    assert (0, 0) == (cache.size, len(cache))
    # what answers nothing any more would only grow
    assert not cache.by_generation
    assert not cache.by_owner


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

    assert [key(2)] == [one.key for one in cache.put(entry(key(4), 100, 4_096))]
