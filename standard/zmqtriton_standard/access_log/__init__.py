"""The access log: a line of JSON for each request, whatever its protocol.

`step.py` makes the lines in each frontend; `process.py` writes them to the file.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from zmqtriton.sdk import AddOn, Offer, Option, Process


class AccessLogOptions(NamedTuple):
    access_log: Annotated[
        str,
        Option(
            "File that gets a line of JSON for each request, and each that is refused: client, "
            "model, status, times, bytes."
        ),
    ] = ""


ADDON = AddOn(
    "access_log",
    needs=("metrics",),
    title="Capture",
    options=AccessLogOptions,
    process=Process(
        ".process", on="access-log", title="Access log", is_serving=True, ends_last=True
    ),
    offers={
        "diagnosis.chapters": ".findings:chapters",
        "options.behind": "Tracing",
        "options.check": Offer(".options:problem", on="access-log"),
        "requests.step": Offer(".step:access_log", on="access-log"),
        "metrics.text": Offer(".refusals:metrics", on="access-log"),
    },
)
