"""Capture: records of requests and their responses on disk, which are shown and sent again.

`step.py` sends requests that a frontend sees to a process of its own (`process/`), which writes
records (`records.py`). `showing.py` prints them, `replaying.py` sends them again.
"""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Offer, Option, Process

ADDON = AddOn(
    "capture",
    title="Capture",
    needs=(
        "storage",
        "ctl",
        "metrics",
        "tracing",
    ),
    options=(
        Option(
            "capture",
            str,
            "",
            "Models of which requests are captured, and how many: 'prices:10%,fraud:1/s,logs*'.",
        ),
        Option(
            "capture-to",
            str,
            "",
            "Directory of the captured requests, or s3://, gs://, as://, https://.",
            is_place=True,
        ),
        Option(
            "capture-byte-size",
            "zmqtriton.options.values:long_integer",
            1 << 30,
            "Limit on the bytes of all captured requests; the oldest go first. 0: no limit.",
            "integer",
        ),
    ),
    process=Process(".process", on="capture", title="Capture", is_serving=True),
    ctl={"capture": ".showing:capture", "replay": ".command:replay"},
    public={"testing.Case": ".cases:Case", "testing.captured": ".cases:captured"},
    offers={
        "ctl.group": {"Send requests": "capture replay"},
        "options.behind": "Tracing",
        "options.check": Offer(".options:problem", on="capture"),
        "requests.step": Offer(".step:capture", on="capture"),
        "new.form": {"test --from": ".cases:run_new_test"},
        "metrics.text": Offer(".figures:metrics", on="capture"),
    },
)
