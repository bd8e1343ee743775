"""The models that a request leads to, alike in all processes.

An ensemble leads to its members. The requests of a model may be divided between two of its
versions: frontends choose for clients' requests, the broker for those of models and of ensembles'
steps. A sequence is divided by its id, so that all of its requests go the same way.
"""

from __future__ import annotations

import random
import zlib
from typing import Any, Callable, Iterator, Mapping, Optional

from zmqtriton_floor.wire import Correlation, TrafficSplit

#: A weight of this is all requests.
ALL = 10_000
#: Returns the configuration for a name and version (-1: the newest), or None.
Find = Callable[[str, int], Optional[Mapping[str, Any]]]


def inside(
    find: Find, model: str, version: int, around: frozenset[str] = frozenset()
) -> Iterator[Mapping[str, Any]]:
    """Return the known configurations of a model and of all models that it leads to."""
    config = find(model, version) if model not in around else None
    if config is None:
        return
    yield config
    for step in config.get("ensemble_scheduling", {}).get("step", []):
        name, number = step["model_name"], int(step.get("model_version", -1))
        yield from inside(find, name, number, around | {model})


def goes_to_trial(split: TrafficSplit, key: Correlation) -> bool:
    """Choose the version of a request: by its key (its sequence, its client) or by chance.

    If the weight grows, keys that went to the version on trial still go there.
    """
    if key:
        hashed = zlib.crc32(f"{split.model}\n{key}".encode("utf-8", "surrogatepass"))
        return hashed * ALL < split.weight << 32
    return random.random() * ALL < split.weight


def is_copied(split: TrafficSplit) -> bool:
    """Choose whether a request of the stable version is also copied to the version on trial."""
    return random.random() * ALL < split.shadow
