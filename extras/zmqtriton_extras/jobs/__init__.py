"""Jobs: requests that are kept on disk, answered 202, and executed later.

What both ends share stands here: `messages.py`. `process/` keeps and executes jobs; `extension.py`
and `routes.py` take them from clients of HTTP.
"""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Offer, Option, Process

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
    options=(
        Option(
            "jobs",
            bool,
            False,
            "Keep requests with 'Prefer: respond-async' in the state directory, answer 202, and "
            "execute them later.",
        ),
        Option(
            "jobs-keep-secs",
            int,
            7 * 24 * 3600,
            "Seconds after which a job that has ended is removed, and one that waits fails.",
        ),
        Option(
            "jobs-max-bytes",
            int,
            10 << 30,
            "Bytes of jobs and results from which on new jobs get 507.",
        ),
        Option(
            "webhook-allow",
            tuple,
            (),
            "Host, HOST:PORT, or network of addresses that are not public, to which the ends of "
            "jobs may be posted. May be repeated.",
        ),
        Option(
            "webhook-secret-file",
            str,
            "",
            "File of the secret that signs webhooks.",
            is_secret=True,
        ),
    ),
    process=Process(".process", on="jobs", title="Jobs", is_serving=True),
    ctl={"batches": ".batches.ctl:batches", "jobs": ".ctl:jobs"},
    offers={
        "ctl.group": {"Send requests": "batches jobs"},
        "options.check": Offer(".process.webhooks.signatures:problem", on="jobs"),
        # batches behind jobs, which would take their uploads for inferences
        "http.extension": (".extension:EXTENSION", ".batches.extension:EXTENSION"),
        "metrics.text": Offer(".metrics:metrics", on="jobs"),
    },
)
