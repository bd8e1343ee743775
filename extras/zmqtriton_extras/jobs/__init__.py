"""Jobs: requests that are kept on disk, answered 202, and executed later.

What both ends share stands here: `messages.py`. `process/` keeps and executes jobs; `extension.py`
and `routes.py` take them from clients of HTTP.
"""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Process

ADDON = AddOn(
    "jobs",
    check=".process.webhooks.signatures:problem",
    # batches behind jobs, which would take their uploads for inferences
    http=(".extension:EXTENSION", ".batches.extension:EXTENSION"),
    process=Process(".process", on="jobs", title="Jobs", is_serving=True),
    ctl={"batches": ".batches.ctl:batches", "jobs": ".ctl:jobs"},
    metrics=".metrics:metrics",
    after=("generate", "openai", "web_sockets"),
    needs=("openai", "routes"),
)
