"""Authoring: commands and tests for people who write models; a server needs none of them."""

from zmqtriton.sdk import AddOn, Command

ADDON = AddOn(
    "authoring",
    needs=(),
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
            ".example:run_example",
            "example name [directory]        write an example",
        ),
    },
    public={"testing": ".testing"},
)
