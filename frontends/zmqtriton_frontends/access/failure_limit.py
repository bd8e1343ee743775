"""A limit on wrong tokens, for each address: a bucket that every failure fills and time empties.

Does no I/O and has no clock. It remembers so many addresses and forgets the one that was silent for
longest, so that nobody fills the memory by coming from ever new ones.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from typing import NamedTuple

#: So many may come at once, and one more each time this has passed.
MAX_AT_ONCE = 20
SECONDS_FOR_ONE = 3.0
MAX_ADDRESSES = 4096
#: An address of IPv6 is one of a network's, whose holder has all others, too.
_OWN_BITS = 64


class Failure(NamedTuple):
    """The judgement of one failure."""

    #: The first after a silence.
    begins_burst: bool
    #: How long the address has to wait before a failure is answered as such again; or 0.
    wait_s: int


class FailureLimit:
    def __init__(self) -> None:
        #: By address: how full its bucket was, and when. The one that failed last is the last.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def add(self, address: str, now_s: float) -> Failure:
        """Add a failure of an address."""
        holder = _holder(address)
        level, since_s = self._buckets.pop(holder, (0.0, now_s))
        left = max(0.0, level - (now_s - since_s) / SECONDS_FOR_ONE)
        is_over = left + 1 > MAX_AT_ONCE
        self._buckets[holder] = (left if is_over else left + 1, now_s)
        if len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)
        wait_s = math.ceil((left + 1 - MAX_AT_ONCE) * SECONDS_FOR_ONE) if is_over else 0
        return Failure(begins_burst=not left, wait_s=wait_s)

    def __len__(self) -> int:
        return len(self._buckets)


def _holder(address: str) -> str:
    """Return the key for all addresses of one client."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:_OWN_BITS]
    if ip.version == 4:
        return str(ip)
    mapped = ip.ipv4_mapped
    if mapped is not None:
        return str(mapped)
    return str(ipaddress.ip_network((int(ip), _OWN_BITS), strict=False))
