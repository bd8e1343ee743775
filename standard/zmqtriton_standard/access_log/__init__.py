"""The access log: a line of JSON for each request, whatever its protocol.

`step.py` makes the lines in each frontend; `process.py` writes them to the file.
"""

from zmqtriton.sdk import AddOn, Option, Process

ADDON = AddOn(
    "access_log",
    options=(
        Option(
            "access-log",
            str,
            "",
            "File that gets a line of JSON for each request, and each that is refused: client, "
            "model, status, times, bytes.",
        ),
    ),
    title="Capture",
    behind="Tracing",
    check=".options:problem",
    step=".step:access_log",
    process=Process(
        ".process", on="access-log", title="Access log", is_serving=True, ends_last=True
    ),
    metrics=".refusals:metrics",
)
