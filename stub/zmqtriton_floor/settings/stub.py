"""The settings of the process of an instance, and those of memory, which frontends have, too."""

from __future__ import annotations

from zmqtriton_floor.logs import LogOptions
from zmqtriton_floor.metrics import MetricsConfig
from zmqtriton_floor.process.named_tuples import NamedTuple


class Memory(NamedTuple):
    """The memory of a process that allocates tensors."""

    #: Of the first segment, and of each further one.
    segment_bytes: int = 1 << 20
    segment_step_bytes: int = 1 << 20
    #: How much clients may make each protocol's frontends hold.
    client_bytes: int = 1 << 62
    #: Of its keys in the response cache, as hex; "": there is no cache.
    cache_secret: str = ""
    #: Free blocks are filled, and reads of them are logged; see zmqtriton_floor.poison.
    is_poisoned: bool = False


class StubSettings(NamedTuple):
    log: LogOptions = LogOptions()
    memory: Memory = Memory()
    metrics: MetricsConfig = MetricsConfig()
    #: "triton" or "opentelemetry"
    trace_mode: str = "triton"
