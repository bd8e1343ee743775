"""The names of models, also for processes without numpy."""

from __future__ import annotations

import re


def model_name(name: str) -> str:
    """Return the name of the model that a function or a class is: `TextScore` is `text_score`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
