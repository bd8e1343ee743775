"""The rule of a model: the part of a request that chooses its instance, and the exceptions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from zmqtriton.sdk.models import config_parameter
from zmqtriton.sdk.wire import datatypes, signature, wire

AFFINITY, BUSIER_BY = "AFFINITY", "AFFINITY_BUSIER_BY"
HEADER, PARAMETER, INPUT = "header", "parameter", "input"
MAX_BUSIER_BY = 1_000_000
_USUALLY_BUSIER_BY = 4
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_MAX_NAME = 1024
#: A prefix of an input that is longer is its whole.
_MAX_BYTES = 1 << 30
#: The length before an element of BYTES.
_PREFIX_BYTES = 4
_STRINGS = datatypes.BY_CONFIG_NAME["TYPE_STRING"].number


class Rule(NamedTuple):
    """The place of the value in a request that chooses its instance."""

    source: str
    name: str
    #: Number of bytes of an input that count; 0 is all.
    size: int = 0


def parse(text: str) -> Rule | None:
    """Return the rule in a text; None for a text without a valid rule."""
    source, _, name = text.partition(":")
    size = 0
    head, colon, tail = name.rpartition(":")
    if source == INPUT and colon and tail.isascii() and tail.isdigit():
        name, size = head, int(tail[:_MAX_NAME])
        if not 0 < size <= _MAX_BYTES:
            return None
    if source not in (HEADER, PARAMETER, INPUT) or not 0 < len(name) <= _MAX_NAME:
        return None
    if source == HEADER and not _HEADER_NAME.fullmatch(name):
        return None
    return Rule(source, name, size)


def busier_by(config: Mapping[str, Any]) -> int:
    """Return by how many requests more than the idlest one an instance may have."""
    text = config_parameter(config, BUSIER_BY)
    if text:
        return int(text)
    is_batching = "dynamic_batching" in config
    return max(_USUALLY_BUSIER_BY, config.get("max_batch_size", 0) if is_batching else 0)


def value_in(rule: Rule, body: wire.RequestBody) -> Any:
    """Return bytes of a request; None if its body lacks the rule's field."""
    source, name, size = rule
    if source == PARAMETER:
        value = body.parameters.get(name)
        return None if value is None else str(value).encode()
    inputs = body.inputs if source == INPUT else ()
    return next((_bytes(one, size) for one in inputs if one.name == name), None)


def _bytes(tensor: wire.Tensor, size: int) -> Any:
    """Return the first bytes of a tensor, for strings of the first one; None on a GPU."""
    if type(tensor.data) not in signature.READABLE:
        return None
    data = memoryview(tensor.data).cast("B")
    if not size:
        return data
    if tensor.datatype == _STRINGS:
        length = int.from_bytes(data[:_PREFIX_BYTES], "little")
        data = data[_PREFIX_BYTES : _PREFIX_BYTES + length]
    return data[:size]


def number_of(value: Any) -> int:
    """Return a hash of the value's bytes for the broker; it is never 0."""
    return int.from_bytes(blake2b(value, digest_size=8).digest(), "big") >> 1 or 1


def weight(number: int, instance: str) -> bytes:
    """Return the weight of an instance for a request; the instance of most weight gets it.

    So a number keeps its instance when others come and go (rendezvous hashing).
    """
    return blake2b(instance.encode(), digest_size=8, salt=number.to_bytes(8, "big")).digest()
