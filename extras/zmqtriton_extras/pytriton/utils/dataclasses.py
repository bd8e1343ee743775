"""Dataclasses whose fields are set by name alone."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type[Any])


def kwonly_dataclass(kind: _Class) -> _Class:
    """Make the constructor of a dataclass refuse arguments by position, with a TypeError.

    New code says `dataclass(kw_only=True)`.
    """
    initialize = kind.__init__

    @functools.wraps(initialize)
    def by_name(self: Any, *arguments: Any, **fields: Any) -> None:
        if arguments:
            raise TypeError(
                f"{kind.__name__} initialization can't be used with positional arguments"
            )
        initialize(self, **fields)

    kind.__init__ = by_name
    return kind
