"""Capture: records of requests and their responses on disk, which are shown and sent again.

`step.py` sends requests that a frontend sees to a process of its own (`process/`), which writes
records (`records.py`). `showing.py` prints them, `replaying.py` sends them again.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from zmqtriton.sdk import AddOn, Offer, Option, Process


class CaptureOptions(NamedTuple):
    capture: Annotated[
        str,
        Option(
            "Models of which requests are captured, and how many: 'prices:10%,fraud:1/s,logs*'."
        ),
    ] = ""
    capture_to: Annotated[
        str,
        Option(
            "Directory of the captured requests, or s3://, gs://, as://, https://.", is_place=True
        ),
    ] = ""
    capture_byte_size: Annotated[
        int,
        Option(
            "Limit on the bytes of all captured requests; the oldest go first. 0: no limit.",
            read="zmqtriton.options.values:long_integer",
            metavar="integer",
        ),
    ] = 1 << 30


ADDON = AddOn(
    "capture",
    title="Capture",
    needs=("storage", "ctl", "metrics", "tracing"),
    options=CaptureOptions,
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
