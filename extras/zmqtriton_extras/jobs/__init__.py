"""Jobs: requests that are kept on disk, answered 202, and executed later.

`messages.py` is shared by both ends. `process/` keeps and executes jobs; `extension.py` and
`routes.py` take them from clients of HTTP.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from zmqtriton.sdk import AddOn, Offer, Option, Process


class JobsOptions(NamedTuple):
    jobs: Annotated[
        bool,
        Option(
            "Keep requests with 'Prefer: respond-async' in the state directory, answer 202, and "
            "execute them later."
        ),
    ] = False
    jobs_keep_secs: Annotated[
        int,
        Option("Seconds after which a job that has ended is removed, and one that waits fails."),
    ] = 7 * 24 * 3600
    jobs_max_bytes: Annotated[
        int, Option("Bytes of jobs and results from which on new jobs get 507.")
    ] = 10 << 30
    webhook_allow: Annotated[
        tuple[str, ...],
        Option(
            "Host, HOST:PORT, or network of addresses that are not public, to which the ends of "
            "jobs may be posted. May be repeated."
        ),
    ] = ()
    webhook_secret_file: Annotated[
        str, Option("File of the secret that signs webhooks.", is_secret=True)
    ] = ""


ADDON = AddOn(
    "jobs",
    title="HTTP",
    needs=(
        "openai",
        "routes",
        "ctl",
        "metrics",
    ),
    after=("generate", "openai", "web_sockets"),
    options=JobsOptions,
    process=Process(".process", on="jobs", title="Jobs", is_serving=True),
    ctl={"batches": ".batches.ctl:batches", "jobs": ".ctl:jobs"},
    offers={
        "ctl.group": {"Send requests": "batches jobs"},
        "diagnosis.chapters": ".findings:chapters",
        "options.check": Offer(".process.webhooks.signatures:problem", on="jobs"),
        # batches behind jobs, which would take their uploads for inferences
        "http.extension": (".extension:EXTENSION", ".batches.extension:EXTENSION"),
        "metrics.text": Offer(".metrics:metrics", on="jobs"),
    },
)
