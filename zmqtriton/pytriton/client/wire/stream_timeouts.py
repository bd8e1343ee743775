"""The time that a client waits for the responses of a stream."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

#: What a timeout counts for: nothing, each response, or all of them together.
TimeoutScope = Literal["none", "response", "stream"]
TIMEOUT_SCOPES: tuple[TimeoutScope, ...] = get_args(TimeoutScope)


class StreamTimeout(NamedTuple):
    """A timeout, and what it counts for."""

    seconds: float
    scope: TimeoutScope

    def begin(self, clock: Callable[[], float] = time.monotonic) -> Callable[[], float | None]:
        """Start a stream; return a function that says how long to wait for its next response.

        None is for ever. The function raises TimeoutError when the stream may take no longer.
        """
        deadline_s = clock() + self.seconds

        def left_s() -> float | None:
            if self.scope != "stream":
                return self.seconds if self.scope == "response" else None
            if (left := deadline_s - clock()) > 0:
                return left
            raise TimeoutError(f"the stream did not end within {self.seconds:g} s")

        return left_s
