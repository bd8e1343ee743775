"""The names that the processes of routes have in common: models, files, parameters and keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

#: Suffix of the name of the model that has another model's routes.
SUFFIX = ".routes"
#: The file beside the code of a model.
FILE = "routes.py"
BACKEND = "routes"
#: Parameters of a model of routes: the directory of the file, what tells one code from another, the
#: inputs of the model as JSON, and how long a route may take to begin its answer.
DIRECTORY, CONTENTS, INPUTS, SECONDS = (
    "ROUTES_DIRECTORY",
    "ROUTES_CONTENTS",
    "ROUTES_INPUTS",
    "ROUTES_SECONDS",
)
#: A parameter of a model: the path of its routes, in place of `/models/NAME`.
PATH = "ROUTES_PATH"
#: A parameter of a model of routes: why they cannot be served.
REFUSAL = "ROUTES_REFUSAL"
#: The first names in paths of the server itself.
OWN_PATHS = frozenset(
    ("docs", "health", "invocations", "models", "openapi.json", "pages", "ping", "v1", "v2")
)
_MAX_PATH = 200
_SEGMENT = re.compile(r"[A-Za-z0-9._~-]+")
#: The tensors of a request to it: what is known of the client's request as JSON, and its body.
HEAD, BODY = "HEAD", "BODY"
#: A field of the head instead of a request: the path of the routes to describe.
DESCRIBES = "describes"
#: The control call that says where the code of models is.
CODE = "code"


def parameter(config: Mapping[str, Any], name: str) -> str:
    """Return the text of a parameter; "" without it."""
    parameters = config.get("parameters") or {}
    return str((parameters.get(name) or {}).get("string_value", ""))


def path_of(config: Mapping[str, Any], model: str) -> str:
    """Return the path of a model's routes."""
    return parameter(config, PATH) or f"/models/{model}"


def path_problem(path: str) -> str:
    """Return why routes cannot have a path; "" if they can."""
    root, *segments = path.split("/")
    is_path = not root and len(path) <= _MAX_PATH and bool(segments)
    for segment in segments:
        is_path = is_path and bool(_SEGMENT.fullmatch(segment)) and segment.strip(".") != ""
    if not is_path:
        return (
            f"{PATH} must be a path such as '/ocr' or '/api/ocr', of letters, digits, '-', '_', "
            f"'.' and '~', up to {_MAX_PATH} bytes; got '{path[:_MAX_PATH]}'"
        )
    if segments[0] in OWN_PATHS:
        return f"{PATH} '{path}' is the server's own: it serves '/{segments[0]}' itself"
    return ""


def roots(path: str) -> Iterator[str]:
    """Return the root paths of routes that could contain a request's path, the longest first."""
    root = path if len(path) <= _MAX_PATH else path[: _MAX_PATH + 1].rpartition("/")[0]
    while root:
        yield root
        root = root.rpartition("/")[0]


def are_within(path: str, other: str) -> bool:
    """Return True if one of two paths is the other one, or is below it."""
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")


def taken_text(path: str, other: str, model: str) -> str:
    """Return the refusal of a path that conflicts with another model's path."""
    return f"{PATH} '{path}' is taken: the routes of model '{model}' are at '{other}'"
