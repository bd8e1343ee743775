"""Commands for people who run servers; a server needs none of them."""

from zmqtriton.sdk import AddOn, Command

ADDON = AddOn(
    "tools",
    needs=("ctl",),
    commands={
        "check": Command(
            "zmqtriton.diagnosis.check:run_check",
            "check directory ... [options]   find errors in models",
        ),
    },
    ctl={
        "doctor": ".diagnosing:doctor",
        "explain": ".diagnosing:explain",
    },
    offers={"ctl.group": {"Health and logs": "doctor explain"}},
)
