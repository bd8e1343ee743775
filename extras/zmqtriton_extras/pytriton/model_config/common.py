"""The common parts of the user's configuration of a model and the server's.

The fields are those of config.pbtxt, and so are their meanings.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class DeviceKind(enum.Enum):
    KIND_AUTO = "KIND_AUTO"
    KIND_CPU = "KIND_CPU"
    KIND_GPU = "KIND_GPU"


class TimeoutAction(enum.Enum):
    """The action for a request whose time in the queue is over."""

    REJECT = "REJECT"
    #: The request waits until all others of its priority level and of higher ones are done.
    DELAY = "DELAY"


@dataclass
class QueuePolicy:
    timeout_action: TimeoutAction = TimeoutAction.REJECT
    #: 0: no timeout.
    default_timeout_microseconds: int = 0
    #: Requests may have a timeout of their own.
    allow_timeout_override: bool = False
    #: 0: any number.
    max_queue_size: int = 0


@dataclass
class DynamicBatcher:
    max_queue_delay_microseconds: int = 0
    preferred_batch_size: list[int] | None = None
    #: Answers go out in the order of their requests.
    preserve_ordering: bool = False
    #: 0: requests have no priority.
    priority_levels: int = 0
    default_priority_level: int = 0
    default_queue_policy: QueuePolicy | None = None
    #: The policy of each priority level that has its own.
    priority_queue_policy: Mapping[int, QueuePolicy] | None = None


@dataclass
class WarmupInput:
    """The data of one input for warm-up; one of the last three fields has to be set."""

    dtype: Any
    #: Without the batch.
    shape: Sequence[int]
    zero_data: bool | None = False
    random_data: bool | None = False
    #: File as numpy.save() writes it, with the batch or without.
    input_data_file: str | None = None


@dataclass
class ModelWarmup:
    """Requests that each callable gets before the model is ready."""

    name: str
    batch_size: int
    inputs: Mapping[str, WarmupInput]
    count: int
