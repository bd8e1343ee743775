"""Capture: records of requests and their responses on disk, which are shown and sent again.

`step.py` sends requests that a frontend sees to a process of its own (`process/`), which writes
records (`records.py`). `showing.py` prints them, `replaying.py` sends them again.
"""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Process

ADDON = AddOn(
    "capture",
    check=".options:problem",
    step=".step:capture",
    process=Process(".process", on="capture", title="Capture", is_serving=True),
    ctl={"capture": ".showing:capture", "replay": ".command:replay"},
    metrics=".figures:metrics",
)
