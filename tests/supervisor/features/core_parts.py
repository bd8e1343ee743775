"""The parts of a core that one feature uses, without the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def core_parts(**parts: Any) -> Any:
    """Return these parts of `CoreParts`; another one that the feature asks for is an error."""
    return SimpleNamespace(**parts)
