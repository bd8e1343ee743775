"""The settings of an instance's process, and the settings of memory, which frontends share."""

from __future__ import annotations

from zmqtriton_floor.logs import LogOptions
from zmqtriton_floor.metrics import MetricsConfig
from zmqtriton_floor.process.named_tuples import NamedTuple


class Memory(NamedTuple):
    """The memory of a process that allocates tensors."""

    #: Bytes of the first segment of a pool, and the minimum of each further one.
    segment_bytes: int = 1 << 20
    segment_step_bytes: int = 1 << 20
    #: Maximum number of bytes that clients may make the frontends of one protocol hold together.
    client_bytes: int = 1 << 62
    #: Secret of the keys that the process makes for the response cache, as hex; "" without a cache.
    cache_secret: str = ""
    #: File of tools/poison.py, whose memory fills free blocks and logs reads of them; "" for plain
    #: memory.
    poison: str = ""


class StubSettings(NamedTuple):
    log: LogOptions = LogOptions()
    memory: Memory = Memory()
    metrics: MetricsConfig = MetricsConfig()
    #: "triton" or "opentelemetry"
    trace_mode: str = "triton"
