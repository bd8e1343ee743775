"""The descriptors that this process may have, and what they are for."""

from __future__ import annotations

import resource

#: What the supervisor holds for an instance: lifeline, pidfd, output, progress page, readiness
#: lifeline. The broker holds fewer.
PER_INSTANCE = 5
#: For listeners, frontends, callers on the control socket, files that are read, and the pages of
#: the stubs that died last.
RESERVED = 96
#: The share of the others that may be segments of shared memory.
SEGMENT_SHARE = 1 / 4

#: Of the process as it was started; models' processes get it back, since a program that uses
#: select() cannot have more than 1,024.
_inherited: tuple[int, int] | None = None


def raise_limit() -> None:
    """Raise the limit as far as this user may: it protects nobody from a server."""
    global _inherited
    _inherited = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def restore_limit() -> None:
    """Restore the limit that the server was started with; to be called in a child."""
    if _inherited is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, _inherited)


def limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def max_segments(descriptors: int) -> int:
    return max(0, int((descriptors - RESERVED) * SEGMENT_SHARE))


def max_instances(descriptors: int) -> int:
    return max(0, descriptors - RESERVED - max_segments(descriptors)) // PER_INSTANCE
