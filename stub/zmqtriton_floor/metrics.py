"""The rules for models' metrics: kinds, names, labels, buckets, and how many there may be.

Stubs check before they tell the broker, which checks again, because a model can make its stub send
anything. Knows no series and no values.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Protocol, Tuple

from zmqtriton_floor.errors import AlreadyExists, InvalidArgument, Unavailable
from zmqtriton_floor.process.named_tuples import NamedTuple
from zmqtriton_floor.settings.offers import Hook


class TokenCounts(Protocol):
    """A module that counts the tokens which models have generated."""

    #: Gets the server's runtime directory, and returns the number of tokens by `model:version`.
    made_tokens: Callable[[Path], Dict[str, int]]


#: Counts tokens, for the history and for `zmqtriton-ctl stats`.
TOKENS = Hook[TokenCounts]("metrics.tokens")

COUNTER, GAUGE, HISTOGRAM = range(3)

#: The upper bounds of the buckets of request times, alike in all servers, so that they can be added
#: up.
REQUEST_BOUNDS_S = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    25.0,
    50.0,
)

#: Families and metrics that one process may have at a time.
MAX_METRICS = 10_000
MAX_NAME = 256
MAX_DESCRIPTION = 1024
MAX_LABELS = 64
#: Characters of a metric's labels in all.
MAX_LABEL_TEXT = 4096
MAX_BUCKETS = 256

_FAMILY = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
#: The prefixes of the server's own families; a second one of such a name would spoil the whole
#: page.
_RESERVED = (
    "nv_inference_",
    "nv_model_",
    "nv_cache_",
    "nv_cpu_",
    "nv_gpu_",
    "nv_energy_",
    "nv_pinned_",
    "zmqtriton_",
)


#: Names of labels of the server's own metrics.
OWN_LABELS = frozenset(
    (
        "cause",
        "code",
        "commit",
        "device",
        "direction",
        "gen_ai_request_model",
        "gen_ai_response_model",
        "gen_ai_token_type",
        "gpu",
        "gpu_uuid",
        "kind",
        "le",
        "max_lora",
        "model",
        "model_instance",
        "model_name",
        "namespace",
        "place",
        "process",
        "quantile",
        "quota",
        "reason",
        "resource",
        "result",
        "role",
        "running_lora_adapters",
        "service",
        "state",
        "token",
        "version",
        "waiting_lora_adapters",
        "what",
    )
)


def check_family(name: Any, description: Any, kind: Any) -> None:
    """Check a family of metrics. Raises a ZmqTritonError that names the fault."""
    if type(name) is not str or len(name) > MAX_NAME or not _FAMILY.fullmatch(name):
        raise InvalidArgument("Invalid metric name")
    if name.startswith(_RESERVED):
        raise AlreadyExists(f"Family name '{name}' is one of the server's own: choose another")
    if type(description) is not str or len(description) > MAX_DESCRIPTION:
        raise InvalidArgument(f"a description can have at most {MAX_DESCRIPTION} characters")
    if type(kind) is not int or kind not in (COUNTER, GAUGE, HISTOGRAM):
        raise InvalidArgument("Invalid metric kind")


def check_metric(kind: int, labels: Any, buckets: Any) -> None:
    """Check a metric of a family of that kind. Raises a ZmqTritonError that names the fault."""
    size = 0
    for key, value in labels.items():
        # a histogram has `le` for itself
        if type(key) is not str or not _LABEL.fullmatch(key) or (kind == HISTOGRAM and key == "le"):
            raise InvalidArgument("Invalid label name")
        if type(value) is not str:
            raise InvalidArgument("attempt to access JSON non-string as string")
        size += len(key) + len(value)
    if len(labels) > MAX_LABELS or size > MAX_LABEL_TEXT:
        raise InvalidArgument(
            f"a metric may have {MAX_LABELS} labels of {MAX_LABEL_TEXT} characters in all"
        )
    if len(buckets) > MAX_BUCKETS:
        raise InvalidArgument(f"a histogram can have at most {MAX_BUCKETS} buckets")
    is_sorted = all(low < high for low, high in zip(buckets, buckets[1:]))
    if not is_sorted or any(bound != bound for bound in buckets):  # NaN
        raise InvalidArgument("Bucket Boundaries must be strictly sorted")


def check_count(count: int) -> None:
    """Raise Unavailable if a process with `count` metrics and families may not add another."""
    if count >= MAX_METRICS:
        raise Unavailable(
            f"a model instance can have at most {MAX_METRICS} metrics and families at a time"
        )


#: Triton's.
_QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)


class MetricsConfig(NamedTuple):
    """The latencies that are kept, from the option `--metrics-config`."""

    has_counters: bool = True
    has_histograms: bool = False
    has_summaries: bool = False
    #: Quantiles of summaries, from 0 to 1, in ascending order.
    quantiles: Tuple[float, ...] = _QUANTILES
    #: Names and values of the operator's labels for all metrics, sorted by name.
    labels: Tuple[Tuple[str, str], ...] = ()


def config_of(options: Iterable[Tuple[str, str]]) -> MetricsConfig:
    """Read (key, value) pairs of `--metrics-config`; of a repeated key or label the last counts.

    Raises InvalidArgument for a wrong label.
    """
    options = list(options)
    said = dict(options)
    labels = dict(pair for key, text in options if key == "labels" for pair in read_labels(text))
    return MetricsConfig(
        _is_on(said.get("counter_latencies", "true")),
        _is_on(said.get("histogram_latencies", "")),
        _is_on(said.get("summary_latencies", "")),
        _quantiles(said.get("summary_quantiles", "")) or _QUANTILES,
        tuple(sorted(labels.items())),
    )


def read_labels(text: str) -> List[Tuple[str, str]]:
    """Parse `team=vision,site=a`. Raises InvalidArgument."""
    labels = []
    for pair in text.split(","):
        name, separator, value = pair.partition("=")
        if not separator or not value:
            raise InvalidArgument(f"expected <label>=<value>, got '{pair}'")
        if not _LABEL.fullmatch(name):
            raise InvalidArgument(
                f"invalid label name '{name}': use letters, digits and '_', no digit first, and "
                "no '__' first"
            )
        if name in OWN_LABELS:
            raise InvalidArgument(f"metrics of the server have a label '{name}': use another name")
        labels.append((name, value))
    return labels


def _is_on(value: str) -> bool:
    return value.lower() in ("true", "1", "on")


def _quantiles(text: str) -> Tuple[float, ...]:
    """Parse `0.5:0.05,0.9:0.01`; the allowed errors are ignored, as the ranks here are exact."""
    quantiles = set()
    for pair in text.split(","):
        try:
            quantile = float(pair.partition(":")[0])
        except ValueError:
            continue
        if 0 <= quantile <= 1:
            quantiles.add(quantile)
    return tuple(sorted(quantiles))
