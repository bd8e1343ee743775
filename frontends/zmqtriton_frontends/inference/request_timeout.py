"""X-Request-Timeout: the seconds that an HTTP client gives its request.

gRPC's clients have deadlines of their own.
"""

from __future__ import annotations

import re

from zmqtriton_floor.errors import InvalidArgument

HEADER = b"x-request-timeout"
#: Up to 31 years, in nanoseconds at the finest.
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


def deadline_ns(text: str, begun_ns: int) -> int:
    """Return the deadline of a request that has begun to come at this time.

    Raises InvalidArgument.
    """
    if not _SECONDS.fullmatch(text) or not float(text):
        raise InvalidArgument(
            f"X-Request-Timeout must be a number of seconds above 0, such as 2.5, got '{text[:64]}'"
        )
    return begun_ns + int(float(text) * 1e9)
