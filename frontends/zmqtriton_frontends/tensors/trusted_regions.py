"""Clients' regions that stubs map themselves, if the operator trusts (--trust-client-shm).

A region stays registered until the requests that refer to it are answered. A region that a client
truncates kills the stub that reads it, and no other process: frontends never map it.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from zmqtriton_floor.wire import Reference
from zmqtriton_frontends.inference.client_regions import RegionContents


class TrustedRegions:
    def __init__(self, owner: int) -> None:
        """Set up; `owner` is the serial of this process."""
        self._owner = owner
        #: By the ids of requests.
        self._claims: dict[int, ExitStack] = {}
        self._last = 0

    def lend(self, data: Any, claims: ExitStack) -> Reference | None:
        """Lend the region of these data and claim it; None if they are to be copied."""
        if type(data) is not RegionContents:
            return None
        self._last += 1
        reference = data.lent(self._owner, self._last)
        if reference is not None:
            claims.enter_context(data)
        return reference

    def hold(self, own_id: int, claims: ExitStack) -> None:
        """Keep the claims until answered()."""
        self._claims[own_id] = claims.pop_all()

    def answered(self, own_id: int) -> None:
        if own_id in self._claims:
            self._claims.pop(own_id).close()
