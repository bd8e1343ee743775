"""Finds in looks at the files of models which have changed, and are complete. Does no I/O.

Who saves a file may truncate it first, or write another and rename it: a change counts once two
looks have seen the same.
"""

from __future__ import annotations

from collections.abc import Mapping


class FileWatch:
    def __init__(self) -> None:
        #: The fingerprints that were reported, or are about to be.
        self._settled: dict[str, str] = {}
        self._changing: dict[str, str] = {}

    @property
    def is_changing(self) -> bool:
        """True if the next look decides about a change."""
        return bool(self._changing)

    def observe(self, fingerprints: Mapping[str, str]) -> list[str]:
        """Return the models that have changed since they were last returned, or are new."""
        changing = {
            name: seen for name, seen in fingerprints.items() if seen != self._settled.get(name)
        }
        settled = [name for name, seen in changing.items() if seen == self._changing.get(name)]
        self._settled = {n: seen for n, seen in self._settled.items() if n in fingerprints}
        for name in settled:
            self._settled[name] = changing.pop(name)
        self._changing = changing
        return settled
