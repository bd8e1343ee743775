"""Commands for people who run servers; a server needs none of them."""

from zmqtriton.sdk import AddOn, Command

ADDON = AddOn(
    "tools",
    needs=(
        "ctl",
        "environments",
    ),
    commands={
        "check": Command(
            ".checking.command:run_check",
            "check directory ... [options]   find errors in models",
        ),
    },
    ctl={
        "doctor": ".doctor.command:doctor",
        "explain": ".explaining.command:explain",
    },
    offers={
        "ctl.group": {"Health and logs": "doctor explain"},
        "ctl.explanation": ".explaining.command:explain_model",
    },
)
