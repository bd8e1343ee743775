"""The settings of a broker."""

from __future__ import annotations

from typing import Tuple

from zmqtriton_floor.logs import LogOptions
from zmqtriton_floor.metrics import MetricsConfig
from zmqtriton_floor.process.named_tuples import NamedTuple
from zmqtriton_floor.settings.offers import Offers


class Cache(NamedTuple):
    """The response cache."""

    #: Secret of the keys that the broker makes for steps of ensembles, as hex; "" without a cache.
    secret: str = ""
    bytes: int = 0
    #: Maximum number of these bytes that may be in shared memory.
    shared_bytes: int = 0


class RequestLimits(NamedTuple):
    """Limits on unanswered requests; 0: as many as the broker can take."""

    max_requests: int = 0
    max_model_requests: int = 0


class RateLimitResource(NamedTuple):
    """A rate-limiter resource; device is -1 for one that belongs to no device."""

    name: str
    amount: int
    device: int


class RateLimits(NamedTuple):
    is_on: bool = False
    resources: Tuple[RateLimitResource, ...] = ()


class OnDemand(NamedTuple):
    """Loading of models by requests: whether it is on, and how long a request waits for it."""

    is_on: bool = False
    timeout_s: float = 60.0


class BrokerSettings(NamedTuple):
    log: LogOptions = LogOptions()
    metrics: MetricsConfig = MetricsConfig()
    cache: Cache = Cache()
    limits: RequestLimits = RequestLimits()
    rate: RateLimits = RateLimits()
    on_demand: OnDemand = OnDemand()
    #: The number of requests that a model's batcher waits for before it begins.
    held_requests: int = 0
    #: Directory with models from object stores, which is removed with the server; "" if there is
    #: none.
    storage_directory: str = ""
    #: Has the server's directory in it, and is cleared by the last one there; "": there is none.
    named_directory: str = ""
    #: The roles of the processes that serve clients.
    serving_roles: Tuple[str, ...] = ("grpc", "http")
    offers: Offers = Offers()
