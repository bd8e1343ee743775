"""The parts of a core that one feature uses, without the others."""

from __future__ import annotations

from typing import Any

from zmqtriton.supervisor.features.feature import CoreParts


def core_parts(**parts: Any) -> Any:
    """Return `CoreParts` with these; the others are None, and of no use to a feature."""
    return CoreParts(**{**dict.fromkeys(CoreParts._fields), **parts})
