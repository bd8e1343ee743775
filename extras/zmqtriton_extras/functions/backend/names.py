"""Names of models, and in schemas of functions. This module does not import numpy."""

from __future__ import annotations

import re

#: Own fields in JSON schemas: element type and shape of an array, and content type.
DATATYPE, DIMS, CONTENT = "x-datatype", "x-dims", "contentMediaType"
#: The parameter of the configuration that describes a function to the server.
DESCRIPTION = "FUNCTION"


def model_name(name: str) -> str:
    """Return the default model name of a function or a class: `text_score` for `TextScore`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
