"""One generation of a model: its configuration, its counters, and whether it is ending.

Its scheduler has its waiting requests, and its instances.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

from zmqtriton.broker.ensembles.plan import EnsemblePlan
from zmqtriton.broker.metrics.latencies import statistics_of
from zmqtriton.broker.metrics.statistics import Clock, ModelStatistics, ResponseCounts
from zmqtriton.broker.requests.response_order import order_of
from zmqtriton.broker.scheduling.execution_rate import MAX_EXECUTIONS
from zmqtriton_floor.cache_keys import is_cached
from zmqtriton_floor.metrics import MetricsConfig
from zmqtriton_floor.signature import Signature, splits_batches, takes_gpu

#: The model parameter that limits one execute(), in seconds; absent or 0: no limit.
_MAX_EXECUTION = "max_execution_seconds"
#: The model parameter that limits the unanswered requests of clients; 0: no limit.
_MAX_REQUESTS = "max_requests"
#: The model parameter that limits the open streams of an instance; without it there is no limit.
_MAX_STREAMS = "max_streams"


def _parameter(config: dict[str, Any], name: str) -> float | None:
    """Return a model's numeric parameter in any spelling of its name, or None."""
    for key, value in config.get("parameters", {}).items():
        if key.lower() == name:
            try:
                number = float(value.get("string_value", ""))
            except ValueError:
                return None
            return number if 0 <= number < 1e9 else None
    return None


def _instances(config: dict[str, Any]) -> int:
    groups = config.get("instance_group") or [{}]
    return sum(group.get("count", 1) * max(1, len(group.get("gpus", []))) for group in groups)


class BrokerGeneration:
    """One loading of one version of a model, as the broker sees it."""

    def __init__(self, number: int, model: str, version: int, config: str) -> None:
        document: dict[str, Any] = json.loads(config) if config else {}
        policy = document.get("model_transaction_policy") or {}
        #: Parts of the configuration that decide which requests fit. Generations with equal ones
        #: take the same requests.
        self.interface = [document.get(k) for k in ("max_batch_size", "input", "output")]
        #: True if the first dimension of its tensors is that of a batch.
        self.has_batches = bool(document.get("max_batch_size"))
        self.number = number
        self.model = model
        self.version = version
        self.is_decoupled = bool(policy.get("decoupled", False))
        #: Maximum number of requests without a final answer at each instance; 0: no limit.
        self.max_streams = int(_parameter(document, _MAX_STREAMS) or 0) if self.is_decoupled else 0
        #: A request with more inferences is executed in parts; 0 if requests are never split.
        self.split_above = int(document["max_batch_size"]) if splits_batches(document) else 0
        #: True if equal requests may get the answer of an earlier one.
        self.is_cached = is_cached(document) and not self.is_decoupled
        #: True if the model takes inputs in the memory of a GPU.
        self.takes_gpu = takes_gpu(document)
        #: The steps of an ensemble; None for a model that has stubs.
        self.plan = EnsemblePlan(model, document) if "ensemble_scheduling" in document else None
        self.max_execution_ns = int((_parameter(document, _MAX_EXECUTION) or 0) * 1e9)
        max_requests = _parameter(document, _MAX_REQUESTS)
        #: Maximum number of unanswered client requests; None if the server's options decide.
        self.max_requests = None if max_requests is None else int(max_requests)
        self.statistics = ModelStatistics()
        #: The models that this one has called.
        self.calls: set[str] = set()
        #: True once the generation takes no more requests; its last answer ends it.
        self.is_retired = False
        #: True once the supervisor was sent Drained: the generation is retired, nothing is left to
        #: answer, and its stubs are ending.
        self.is_drained = False
        #: Admitted requests without an answer.
        self.unanswered = 0
        #: The execution time of all its instances, up to the end of the last batch of each.
        self.busy_ns = 0
        #: Order that its answers are kept in; None if they leave as they come.
        self.order = order_of(document)
        #: The number of instances when all have started.
        self.expected = _instances(document)
        sequences = document.get("sequence_batching")
        #: True if its requests are parts of sequences.
        self.has_sequences = sequences is not None
        #: True if each of its requests is a sequence by itself, executed step by step.
        self.is_iterative = sequences is not None and bool(sequences.get("iterative_sequence"))
        self.config: dict[str, Any] = document

    @property
    def wait_ms(self) -> int:
        """Return the time that all unanswered requests will take, in ms; 0 if unknown.

        It assumes the mean execution time of the requests so far, in batches as large as theirs.
        """
        executed = self.statistics.compute.count
        if not executed or not self.expected:
            return 0
        return self.unanswered * self.busy_ns // (executed * self.expected * 1_000_000)

    @property
    def max_executions_per_second(self) -> float:
        """Return the model's limit; 0: no limit."""
        return _parameter(self.config, MAX_EXECUTIONS) or 0.0

    def measure(self, metrics: MetricsConfig, clock: Clock) -> None:
        """Begin to count, as the server's settings require."""
        self.statistics = statistics_of(self.config, metrics, clock, is_cached=self.is_cached)
        self.statistics.split_above = self.split_above
        self.statistics.responses = ResponseCounts() if self.is_decoupled else None

    def count_responses(self, counts: str) -> None:
        if counts and self.statistics.responses is not None:
            self.statistics.responses.add(counts)

    def regroup(self, config: str) -> None:
        """Change the instance groups; everything else stays."""
        self.expected = _instances(json.loads(config))

    @cached_property
    def signature(self) -> Signature:
        """Return the signature for requests of models and ensembles, unchecked by a frontend."""
        return Signature({"name": self.model, **self.config})
