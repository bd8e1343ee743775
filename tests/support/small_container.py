"""A control group with little memory, for a server that is started in it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


@contextmanager
def memory_group(limit: int) -> Iterator[list[str]]:
    """Yield the beginning of a command line that runs in the group; skip where none can be had."""
    is_v1 = (_V1 / "cgroup.procs").exists()
    group = (_V1 if is_v1 else _V2) / f"zmqtriton-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if is_v1 else "memory.max")).write_text(str(limit))
    except OSError as error:
        if group.exists():
            group.rmdir()
        pytest.skip(f"no control group can be made: {error}")
    try:
        yield ["/bin/sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
    finally:
        group.rmdir()


def oom_kills(group_pid: int) -> int:
    """Return how many processes the kernel has killed in the group of a process."""
    for line in Path(f"/proc/{group_pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        root = _V1 if "memory" in controllers.split(",") else _V2 if not controllers else None
        for file in ("memory.oom_control", "memory.events"):
            if root is not None and (root / path.lstrip("/") / file).exists():
                match = re.search(
                    r"^oom_kill (\d+)", (root / path.lstrip("/") / file).read_text(), re.M
                )
                return int(match[1]) if match else 0
    return 0
