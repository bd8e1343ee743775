"""The default names of models. This module does not import numpy."""

from __future__ import annotations

import re


def model_name(name: str) -> str:
    """Return the default model name of a function or a class: `text_score` for `TextScore`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
