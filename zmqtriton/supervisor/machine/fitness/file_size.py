"""The size that files may have (`ulimit -f`), which the kernel also applies to shared memory."""

from __future__ import annotations

import resource

#: The pages in which stubs write what they begin, and a common segment of tensors.
_NEEDED_BYTES = 16 << 20


def raise_limit() -> None:
    """Raise the limit as far as this user may, for all that this process starts, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def shortage() -> str:
    """Return why no server can start under this limit; "" if one can."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    if limit == resource.RLIM_INFINITY or limit >= _NEEDED_BYTES:
        return ""
    return (
        f"ulimit -f allows files of {limit} bytes, which counts for shared memory, too; the server "
        f"needs {_NEEDED_BYTES}, and as many as the largest tensor has"
    )
