"""The names by which the parts know each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Behind the name of a model, whose routes the model of that name has.
SUFFIX = ".routes"
#: The file beside the code of a model.
FILE = "routes.py"
BACKEND = "routes"
#: Parameters of a model of routes: the directory of the file, what tells one code from another, the
#: inputs of the model as JSON, and how long a route may take to begin its answer.
DIRECTORY, CONTENTS, INPUTS, SECONDS = (
    *("ROUTES_DIRECTORY", "ROUTES_CONTENTS"),
    *("ROUTES_INPUTS", "ROUTES_SECONDS"),
)
#: The tensors of a request to it: what is known of the client's request as JSON, and its body.
HEAD, BODY = "HEAD", "BODY"
#: The control call that says where the code of models is.
CODE = "code"


def parameter(config: Mapping[str, Any], name: str) -> str:
    """Return the text of a parameter; "" without it."""
    parameters = config.get("parameters") or {}
    return str((parameters.get(name) or {}).get("string_value", ""))
