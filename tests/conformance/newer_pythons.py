"""Texts of errors without what only some Pythons say, so that recorded ones hold for all."""

from __future__ import annotations

import re

#: Python 3.12 and newer run a comprehension in the frame of the function around it.
_COMPREHENSION = re.compile(r"(  \S+\(\d+\): )<(?:list|dict|set)comp>\\n  \S+\(\d+\): ")
#: Python 3.13 and newer know names that are alike.
_HINT = re.compile(r"\. Did you mean '\w+'\?")


def as_of_all(document: str) -> str:
    """Return a JSON document with texts that are the same with each Python."""
    return _HINT.sub("", _COMPREHENSION.sub(r"\1", document))
