"""Findings about what a machine is short of: processors, memory, disks; and about slow loops.

Does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from zmqtriton.findings import Finding, warning

_ADVICE = {
    "cpu": (
        "Give the server a larger share: CPUWeight= of systemd, `docker run --cpu-shares`, "
        "resources.requests.cpu of Kubernetes; or move the other programs.",
        "top",
    ),
    "memory": (
        "The kernel drops pages and reads them again: give the machine more memory, or unload "
        "models.",
        "zmqtriton-ctl top",
    ),
    "io": (
        "Loads and starts take longer; requests only of models that read or write files.",
        "iostat -x 1",
    ),
    "loop": (
        "A process did work for which others had to wait: a defect, or a file system that is slow. "
        "Please report its longest_turn, which has more of the place.",
        "zmqtriton-ctl status --json",
    ),
}


def judge_pressure(rows: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    """Tell what a server has measured, or the kernel; each row has a `resource` and a `text`."""
    for row in rows:
        advice, command = _ADVICE[row["resource"]]
        yield warning(row["text"], advice, command)
