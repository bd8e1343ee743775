"""The choice of requests that are traced, and the destination of their traces."""

from __future__ import annotations

from typing import Tuple

from zmqtriton_floor.logs import LogOptions
from zmqtriton_floor.process.named_tuples import NamedTuple


class Sampling(NamedTuple):
    """The choice of a model's requests that are traced; `model` "" means all other models."""

    model: str
    #: TIMESTAMPS and TENSORS; none is off.
    levels: Tuple[str, ...]
    rate: int
    #: Number of traces still to be made; -1 for no limit.
    max_traces: int
    log_frequency: int
    #: The name under which its traces are counted, with those of all others under the same limit.
    counter: str


class TracingSettings(NamedTuple):
    """The choice that frontends make of requests; a wire.TraceSettings carries a new one."""

    #: "triton" or "opentelemetry"
    mode: str = "triton"
    models: Tuple[Sampling, ...] = ()


class TracerSettings(NamedTuple):
    """The settings of the process that stores traces."""

    log: LogOptions = LogOptions()
    mode: str = "triton"
    file: str = ""
    #: The settings of the OpenTelemetry exporter in order, as (key, value).
    opentelemetry: Tuple[Tuple[str, str], ...] = ()
