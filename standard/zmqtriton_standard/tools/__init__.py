"""Commands for people who write models and run servers; a server needs none of them."""

from zmqtriton.sdk import AddOn, Command

ADDON = AddOn(
    "tools",
    needs=(
        "ctl",
        "environments",
    ),
    commands={
        "new": Command(
            ".new_model.command:run_new",
            "new name [options]              write a first model, its test and a client",
        ),
        "run": Command(
            ".run:run_model",
            "run model.py [options]          serve one file, or one model's directory",
        ),
        "demo": Command(
            ".demo:run_demo",
            "demo [directory] [options]      serve example models and print commands to try",
        ),
        "example": Command(
            ".examples:run_example",
            "example name [directory]        write an example pipeline",
        ),
        "check": Command(
            ".checking.command:run_check",
            "check directory ... [options]   find errors in models",
        ),
    },
    ctl={
        "doctor": ".doctor.command:doctor",
        "explain": ".explaining.command:explain",
    },
    public={"testing": ".testing"},
    offers={
        "ctl.group": {"Health and logs": "doctor explain"},
        "ctl.explanation": ".explaining.command:explain_model",
    },
)
