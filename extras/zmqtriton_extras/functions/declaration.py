"""The declaration, beside the package, which models import in Pythons without the server."""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Backend, Command, Option, Parameter

ADDON = AddOn(
    "functions",
    title="Functions",
    options=(
        Option(
            "functions-url-host",
            tuple,
            (),
            "Read pictures, sounds and files of functions from https URLs of this HOST, HOST:PORT, "
            "or origin such as http://files:8080. May be repeated.",
            metavar="HOST",
        ),
    ),
    commands={
        "export": Command(
            ".exporting:run_export",
            "export file.py directory        write functions as models that Triton serves",
        ),
    },
    parameters={
        "FUNCTION": Parameter(
            "JSON", "made of the hints", "Describes the function to the server; do not write it."
        ),
    },
    problems=".taken_names:problems",
    http=".extension:EXTENSION",
    caller=".calling:call_of",
    file_problems=".checking:problems",
    findings=".explaining",
    new={"NAME": ".new:run_new"},
    requests=".example_requests:requests",
    needs=("routes",),
    after=("routes",),
    backends={
        "functions": Backend(".backend", models_in=".sources:models_in"),
        "streams": Backend(".streams"),
    },
    public={
        "Array": ".backend.api:Array",
        "Audio": ".backend.api:Audio",
        "End": ".backend.api:End",
        "Failed": ".backend.api:Failed",
        "File": ".backend.api:File",
        "Full": ".backend.api:Full",
        "Image": ".backend.api:Image",
        "Refused": ".backend.api:Refused",
        "model": ".backend.api:model",
    },
)
