"""Asks systemd how the server's unit is doing."""

from __future__ import annotations

import subprocess
from pathlib import Path

#: There while systemd is process 1.
_BOOTED = Path("/run/systemd/system")
_TIMEOUT_S = 5.0


def read_failure(unit: str) -> str:
    """Return how the unit's last run ended; "" if it is well, or if nobody can tell."""
    if "@." in unit or not _BOOTED.is_dir():
        return ""
    command = ["systemctl", "show", "--property=ActiveState,Result,NRestarts", unit]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return failure_in(done.stdout)


def failure_in(properties: str) -> str:
    """Find the failure in what `systemctl show` has printed."""
    found = dict(line.partition("=")[::2] for line in properties.splitlines())
    if found.get("Result", "") not in ("", "success"):
        return found["Result"]
    # A new attempt hides how the last one ended.
    is_tried_again = found.get("ActiveState") == "activating" and found.get("NRestarts", "0") != "0"
    return "a restart" if is_tried_again else ""
