"""The division of a model's requests between two of its versions, alike in all processes.

Frontends choose for clients' requests, the broker for those of models and of ensembles' steps. A
sequence is divided by its id, so that all of its requests go the same way.
"""

from __future__ import annotations

import random
import zlib

from zmqtriton_floor.wire import Correlation, TrafficSplit

#: A weight of this is all requests.
ALL = 10_000
_HASHES = 1 << 32


def goes_to_canary(split: TrafficSplit, correlation: Correlation) -> bool:
    """Choose the version of a request: by its sequence if it has one, else by chance."""
    if correlation:
        hashed = zlib.crc32(f"{split.model}\n{correlation}".encode("utf-8", "surrogatepass"))
        return hashed * ALL < split.weight * _HASHES
    return random.random() * ALL < split.weight


def is_copied(split: TrafficSplit) -> bool:
    """Choose whether a request of the stable version is copied to the canary."""
    return random.random() * ALL < split.shadow
