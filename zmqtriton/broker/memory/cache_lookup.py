"""The response cache: which requests are answered from it, and which answers it keeps.

Called by the core for each request with a key, when it is admitted and when it is answered. No
tensor is looked at: small ones are part of a body, others stay in the memory of the process that
made them, where the cache holds a lease. Bodies are compared by the keys that frontends and stubs
have made. A request of a model is never answered with the answer to another model or to a client.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zmqtriton.broker.memory.response_cache import CacheEntry, CacheKey, ResponseCache
from zmqtriton.broker.metrics.statistics import Clock, no_clock
from zmqtriton.broker.requests.answers import Answers
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.requests.protocols import RequestLifecycle
from zmqtriton.broker.scheduling.generation import BrokerGeneration
from zmqtriton.broker.state import BrokerPart, BrokerState
from zmqtriton_floor import wire
from zmqtriton_floor.cache_keys import KEY_BYTES, Keys
from zmqtriton_floor.settings.broker import Cache

_PAGE = 4096
#: Flags of requests whose answers fit no other request: these may be on a GPU, may have been given
#: before, or belong to a sequence.
_UNCACHEABLE_FLAGS = (
    wire.ACCEPTS_GPU | wire.RESENT | wire.PADDING | wire.SEQUENCE_START | wire.SEQUENCE_END
)


class CacheLookup(BrokerPart):
    def __init__(self, state: BrokerState, lifecycle: RequestLifecycle, answers: Answers) -> None:
        super().__init__(state)
        self._lifecycle = lifecycle
        self._answers = answers
        #: Entries of the response cache; None if the server has none.
        self.cache: ResponseCache | None = None
        #: Keys for the steps of ensembles, whose requests are made in this process.
        self._keys = Keys(b"")
        self._clock: Clock = no_clock
        self._hits = self._misses = 0
        self._lookup_ns = self._insertion_ns = 0

    def configure(self, settings: Cache, clock: Clock) -> None:
        """Open the cache, if there is one."""
        self._clock = clock
        if settings.secret:
            self._keys = Keys(bytes.fromhex(settings.secret))
            self.cache = ResponseCache(settings.bytes, settings.shared_bytes)

    def answer_from_cache(self, request: InflightRequest, now_ns: int) -> bool:
        """Answer an admitted request from the cache; return True if the cache has the answer.

        The request is neither queued nor begun yet.
        """
        cache, generation = self.cache, request.generation
        if (
            cache is None
            or not generation.is_cached
            or request.flags & _UNCACHEABLE_FLAGS
            or request.correlation
        ):
            return False
        begun_ns = self._clock()
        key = self._key(request)
        if key is None:
            return False
        entry = cache.get(key)
        took_ns = self._clock() - begun_ns
        self._lookup_ns += took_ns
        if entry is None:
            request.miss = key, took_ns
            self._misses += 1
            generation.statistics.cache_miss.add(1, took_ns)
            return False
        self._hits += 1
        generation.statistics.record_cache_hit(request, took_ns)
        if entry.blocks:
            self._blocks.grant_lease(request.peer, entry.blocks)
        if generation.order is not None:
            generation.order.add(request.key, request.flags)
        self._send(request, entry, now_ns)
        return True

    def _send(self, request: InflightRequest, entry: CacheEntry, now_ns: int) -> None:
        self._answers.finish(request)
        flags = wire.FINAL | wire.HAS_REFERENCES if entry.blocks else wire.FINAL
        outcome = wire.Outcome(*request.key, 0, "", flags, 0, entry.blocks)
        self._lifecycle.deliver(request, outcome, entry.body, now_ns)

    def _key(self, request: InflightRequest) -> CacheKey | None:
        if request.parent is None:
            ensemble, asker, input_key = 0, self._calling_generation(request), request.cache_key
        else:
            # A step's inputs are the ensemble's and the outputs of other steps. Large ones have
            # digests if they were made for a model with a cache.
            body = wire.decode_request(request.body)
            if body.places:
                return None  # what its stub writes to a client's memory is in no answer
            has_digests = any(type(tensor.data) is wire.Reference for tensor in body.inputs)
            ensemble = request.parent.generation.number
            # Without digests the key covers the data itself, and nobody can have lied about it.
            asker = self._calling_generation(request) if has_digests else 0
            input_key = self._keys.of_placed(body)
        if len(input_key) != KEY_BYTES:
            return None
        return request.generation.number, ensemble, asker, input_key

    def _calling_generation(self, request: InflightRequest) -> int:
        """Return the generation of the model that made the request, perhaps through ensembles.

        0 for a client.
        """
        instance = self._instances.get(request.root.peer)
        return 0 if instance is None else instance.generation

    def store(
        self, source: int, request: InflightRequest, outcome: wire.Outcome, body: bytes
    ) -> None:
        """Store the only response of a request that the cache could not answer.

        No process has got the response yet, so neither its blocks nor its inputs' blocks can have
        been reused.
        """
        cache, miss = self.cache, request.miss
        request.miss = None
        is_whole = outcome.flags & wire.FINAL and not outcome.number and not outcome.code
        generation = request.generation
        if cache is None or miss is None or not is_whole or not body or generation.is_retired:
            return
        key, lookup_ns = miss
        begun_ns = self._clock()
        if all(
            self._can_lease_in_time(block.owner, source, request.peer) for block in outcome.blocks
        ):
            entry = CacheEntry(key, body, outcome.blocks, _shared(body) if outcome.blocks else 0)
            if cache.fits(entry):
                if entry.blocks:
                    self._blocks.grant_lease(wire.BROKER, entry.blocks)
                self._release(cache.put(entry))
        took_ns = self._clock() - begun_ns
        self._insertion_ns += took_ns
        generation.statistics.record_cache_insertion(lookup_ns, took_ns)

    def _can_lease_in_time(self, owner: int, source: int, asker: int) -> bool:
        """True if a lease reaches the owner of a block before the owner may reuse the block.

        A block may be an input of a stub's own request, which is free with the reply, and the reply
        takes another way. Blocks of a frontend certainly are not a client's only if the request had
        a key.
        """
        peer = self._peers.get(owner)
        if peer is None or peer.role != "stub":
            return peer is not None and owner == asker
        return owner == source or not peer.requests

    def forget_generation(self, generation: BrokerGeneration) -> None:
        """Drop the answers of a generation that accepts no more requests."""
        if self.cache is not None:
            keys = self.cache.by_generation.get(generation.number, ())
            self._release(self.cache.drop_all(keys))

    def forget_owner(self, serial: int) -> None:
        """Drop the answers with blocks in the memory of a dead process."""
        if self.cache is not None:
            self._release(self.cache.drop_all(self.cache.by_owner.get(serial, ())))

    def _release(self, entries: Iterable[CacheEntry]) -> None:
        for entry in entries:
            if entry.blocks:
                self._blocks.release(wire.BROKER, entry.blocks)

    def report(self) -> dict[str, Any]:
        """Return the figures for the metrics; empty without a cache."""
        cache = self.cache
        if cache is None:
            return {}
        return {
            "cache": {
                "utilization": cache.size / max(1, cache.max_bytes),
                "entries": len(cache),
                "hits": self._hits,
                "misses": self._misses,
                "evictions": cache.evictions,
                "lookup_ns": self._lookup_ns,
                "insertion_ns": self._insertion_ns,
            }
        }


def _shared(body: bytes) -> int:
    """Return the size of the shared memory of a response, in bytes of whole pages."""
    outputs = wire.decode_response(body).outputs
    sizes = [tensor.data.size for tensor in outputs if type(tensor.data) is wire.Reference]
    return sum(-(-size // _PAGE) * _PAGE for size in sizes)
