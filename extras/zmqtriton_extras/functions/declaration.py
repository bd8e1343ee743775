"""Declares the add-on.

It is not in the package's `__init__.py`, which models import in Pythons without the server.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from zmqtriton.sdk import AddOn, Command, Option, Parameter


class FunctionsOptions(NamedTuple):
    functions_url_host: Annotated[
        tuple[str, ...],
        Option(
            "Read pictures, sounds and files of functions from https URLs of this HOST, HOST:PORT, "
            "or origin such as http://files:8080. May be repeated.",
            metavar="HOST",
        ),
    ] = ()


ADDON = AddOn(
    "functions",
    title="Functions",
    needs=(
        "authoring",
        "routes",
        "cockpit",
        "generate",
    ),
    after=("routes",),
    options=FunctionsOptions,
    parameters={
        "FUNCTION": Parameter(
            "JSON", "made of the hints", "Describes the function to the server; do not write it."
        ),
    },
    commands={
        "export": Command(
            ".exporting:run_export",
            "export file.py directory        write functions as models that Triton serves",
        ),
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
        "kept": ".backend.api:kept",
        "model": ".backend.api:model",
    },
    offers={
        "models.problems": ".taken_names:problems",
        "diagnosis.file": ".checking:problems",
        "http.extension": ".extension:EXTENSION",
        "page.files": ".files",
        "embedded.caller": ".calling:call_of",
        "diagnosis.model": ".explaining",
        "new.form": {"NAME": ".new:run_new"},
        "run.requests": ".example_requests:requests",
        "models.backend": {
            "functions": ".backend",
            "streams": ".streams",
        },
        "models.in_file": {"functions": ".sources:models_in"},
        "models.implied": {"functions": ".sources:parameters_in"},
    },
)
