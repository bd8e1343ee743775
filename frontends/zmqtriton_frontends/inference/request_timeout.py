"""X-Request-Timeout: the seconds that an HTTP client gives its request.

gRPC's clients have deadlines of their own.
"""

from __future__ import annotations

import re

from zmqtriton_floor.errors import InvalidArgument

HEADER = b"x-request-timeout"
#: Up to 31 years, in nanoseconds at the finest.
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


def read_ns(text: str) -> int:
    """Return the timeout, which counts from when the request has begun to come.

    Raises InvalidArgument.
    """
    if not _SECONDS.fullmatch(text) or not float(text):
        raise InvalidArgument(
            f"X-Request-Timeout must be a number of seconds above 0, such as 2.5, got '{text[:64]}'"
        )
    return int(float(text) * 1e9)
